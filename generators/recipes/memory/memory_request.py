"""Answer a request for a model's memory: of a model type at its default size, or of a folder with only a config.json.
Runs in a child process.

A configuration is checked for impossible sizes, an unsupported precision, and quantized weights; and whether the
weights beside it belong to that model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.memory_fit import PRECISIONS, MemoryEstimate, MemoryRequest, as_quantized
from hwcompat.generators.models.inputs import placeholders
from hwcompat.generators.models.model_libraries import catalog_of
from hwcompat.generators.recipes.build_model import class_of, line_of
from hwcompat.generators.recipes.config_scopes import attribute_of, role_of, text_config, tree
from hwcompat.generators.recipes.input_specs import input_specs
from hwcompat.generators.recipes.real_dims import start
from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.gc_control import uncollected
from hwcompat.hardware.safe_read import is_plain_file

from .memory_estimate import Stack

_LONGEST, _LONGEST_ENCODED = 4096, 512
"""Default contexts in tokens: of a decoder, and of a model with an encoder."""
_MOST_TOKENS = 2**26
"""The largest number of tokens in a batch for which inputs are made: they are real, unlike results."""
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_text_positions")
_SHORTER = 3
"""How many times a context is halved to find one that fits."""
_LEAST_CONTEXT = 256
_SIZES = ("hidden", "width", "heads", "head_dim", "layers", "vocabulary")
_NEVER_ZERO = ("hidden", "heads")
_BITS = {"fp8": 8, "fbgemm_fp8": 8, "finegrained_fp8": 8, "mxfp4": 4, "bitnet": 2}
"""Quantization methods of one width; others state theirs. Source: transformers 5.5, utils/quantization_config.py."""
_APART = 0.02
"""The largest difference of numbers in weight files and model, as a share: buffers are stored, ties are not."""
_NAMED_BITS = re.compile(r"(?:int|fp|float)(2|3|4|6|8)")


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A model without data and its inputs; `longest` is the number of tokens that it can read."""

    stack: Stack
    specs: Mapping[str, Mapping[str, Any]]
    decodes: bool
    encodes: bool
    longest: int | None
    precision: str
    quantized: Quantized | None
    notes: tuple[str, ...]

    @property
    def reads(self) -> bool:
        return any(spec["kind"] in ("tokens", "decoder_tokens") for spec in self.specs.values())


def memory_of(name: str, task: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return estimates for a model type or a folder: `estimates`, that of the request first, then of requests that
    differ in one setting if `least_room` bytes aren't enough for it; `anatomy`; the decisions, in `notes`; and
    `reads_text`, whether it has a context.

    `asked` has `mode`, `precision`, `batch` and `context`, None if not given. Raises `ModelError` with the reason if
    no estimate can be made.
    """
    try:
        with uncollected():  # it imports the model's library
            model = _model(name, task)
        request, notes = _request(model, asked)
        anatomy = model.stack.whole.anatomy()
        estimates = [_estimate(model, request)]
        room = asked.get("least_room")
        if room is not None and estimates[0].total > room:
            estimates += [_estimate(model, other) for other in _others(request, model)]
        if model.quantized:
            bits = model.quantized.bits if request.mode != "training" else None
            notes.append(_how_quantized(model.quantized.method, bits))
            if bits:
                estimates = [as_quantized(one, anatomy, bits) for one in estimates]
                anatomy = replace(anatomy, linear=0, largest=0)
        elif Path(name).is_dir() and (why := weights_of_another(Path(name), anatomy.parameters)):
            notes.append(why)
    except ModelError:
        raise
    except Exception as error:  # any error of modeling code is the reason
        raise ModelError(
            f"the memory of {name} can't be estimated", why=f"{type(error).__name__}: {line_of(error)}"
        ) from error
    return {
        "estimates": [one.to_dict() for one in estimates],
        "anatomy": vars(anatomy),
        "notes": notes,
        "reads_text": model.reads,
    }


def _model(name: str, task: str | None) -> _Model:
    if _library_of(name) == "diffusers":
        raise ModelError(
            f"the memory of {name} can't be estimated",
            why="a diffusers pipeline has a configuration for each part, and they can't be combined",
        )
    what, chosen, config, _ = start(name, task)
    refuse_impossible(config)
    decodes = chosen.entry.generate != "none"
    make = class_of(chosen.model_class)
    stack = Stack(config, lambda one: make(one).eval())
    longest = attribute_of(text_config(config), *_POSITIONS)
    longest = longest if isinstance(longest, int) and longest > 1 else None
    side = "left" if what.architecture == "decoder-only" else "right"
    with stack.least.asked() as model:
        specs = input_specs(model, chosen.entry, what.architecture, side, min(longest or 16, 16))
    for spec in specs.values():
        if spec["kind"] == "decoder_tokens":
            spec.pop("length", None)
    precision, why = declared_precision(config)
    return _Model(
        stack=stack,
        specs=specs,
        decodes=decodes,
        encodes=bool(getattr(config, "is_encoder_decoder", False)),
        longest=longest,
        precision=precision,
        quantized=quantized(config),
        notes=(why,) if why else (),
    )


def _how_quantized(method: str, bits: int | None) -> str:
    if bits is None:
        return f"its weights are quantized ({method}), but estimated without quantization"
    return (
        f"its weights are quantized ({method}): linear layers are estimated in {bits} bits, with one dequantized at "
        "a time; the layers that the method skips are unknown"
    )


def _library_of(name: str) -> str:
    """Return the library that has a type of this name; empty for other names, such as a folder."""
    try:
        return catalog_of(name).library
    except ModelError:
        return ""


def _request(model: _Model, asked: Mapping[str, Any]) -> tuple[MemoryRequest, list[str]]:
    notes = [*model.notes]
    mode = asked.get("mode") or ("generation" if model.decodes else "inference")
    if mode == "generation" and not model.decodes:
        raise ModelError("memory for generation can't be estimated", why="the model's task generates no tokens")
    longest = _LONGEST if model.decodes and not model.encodes else _LONGEST_ENCODED
    context = asked.get("context") or min(longest, model.longest or longest)
    if model.reads and model.longest is not None and context > model.longest:
        raise ModelError(
            f"the model reads at most {model.longest} tokens",
            why=f"its configuration has this limit, and the context is {context} tokens",
            fix=f"Use --context {model.longest}.",
        )
    if not model.reads:
        context = 16
        notes.append("it reads no text; the sizes of images or sounds are those of its configuration")
    if context * (asked.get("batch") or 1) > _MOST_TOKENS:
        raise ModelError(
            f"memory can't be estimated for more than {_MOST_TOKENS} tokens per batch",
            fix="Use a smaller --batch or --context; memory grows linearly with the batch.",
        )
    batch, precision = asked.get("batch") or 1, asked.get("precision") or model.precision
    return MemoryRequest(mode=mode, precision=precision, batch=batch, context=context), notes


def _others(request: MemoryRequest, model: _Model) -> Iterator[MemoryRequest]:
    """Yield requests that differ in one setting and need less; then those that differ in two or three, each as far
    as possible."""
    less: list[dict[str, Any]] = []
    if request.batch > 1:
        less.append({"batch": 1})
    if request.precision == "float32":
        less.append({"precision": "bfloat16"})
    yield from (replace(request, **one) for one in less)
    lengths = [request.context >> step for step in range(1, _SHORTER + 1)] if model.reads else []
    lengths = [one for one in lengths if one >= _LEAST_CONTEXT]
    yield from (replace(request, context=one) for one in lengths)
    less += [{"context": one} for one in lengths[-1:]]
    for many in range(2, len(less) + 1):
        yield replace(request, **{name: value for one in less[:many] for name, value in one.items()})


def _estimate(model: _Model, request: MemoryRequest) -> MemoryEstimate:
    taken = placeholders(model.specs)
    length = max(request.context - taken, 4)  # placeholders of images count among the tokens
    return model.stack.estimate(request, model.specs, [length] * request.batch)


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """How a checkpoint's linear layers are stored: the method's name, and bits of a weight or None if unknown."""

    method: str
    bits: int | None


def refuse_impossible(config: Any) -> None:
    """Raise `ModelError` for impossible sizes: below zero, or zero for a divisor."""
    for scope in tree(config):
        for role in _SIZES:
            for name, value in role_of(scope, role).items():
                for one in value if isinstance(value, list | tuple) else [value]:
                    if type(one) is int and (one < 0 or (one == 0 and role in _NEVER_ZERO)):
                        raise ModelError(
                            "the configuration is invalid",
                            why=f"its {name} is {one}",
                            fix="Correct config.json.",
                        )


def declared_precision(config: Any) -> tuple[str, str]:
    """Return the precision that a configuration names, or float32 with the reason."""
    declared = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    if declared in PRECISIONS:
        return declared, ""
    return (
        "float32",
        f"its configuration has the dtype {declared}, which isn't supported here; the estimate is for float32",
    )


def quantized(config: Any) -> Quantized | None:
    """Return how the weights are stored, if the configuration says that they are quantized."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    settings = settings if isinstance(settings, Mapping) else settings.to_dict()
    method = str(settings.get("quant_method") or "unknown method")
    return Quantized(method=method, bits=_bits(method, settings))


def _bits(method: str, settings: Mapping[str, Any]) -> int | None:
    for name in ("bits", "nbits", "w_bit", "weight_bits"):
        if isinstance(settings.get(name), int):
            return int(settings[name])
    if settings.get("load_in_4bit") or settings.get("_load_in_4bit"):
        return 4
    if settings.get("load_in_8bit") or settings.get("_load_in_8bit"):
        return 8
    named = _NAMED_BITS.search(str(settings.get("weights") or settings.get("quant_type") or ""))
    return int(named[1]) if named else _BITS.get(method)


def weights_of_another(folder: Path, parameters: int) -> str:
    """Return a message if the number of weights in a folder isn't that of its configuration; empty if it is, and
    if none can be read."""
    from safetensors import SafetensorError, safe_open

    count = 0
    for file in sorted(folder.glob("*.safetensors")):
        if not is_plain_file(file):
            return f"{file.name} isn't a regular file; the estimate uses only config.json"
        try:
            with safe_open(str(file), "numpy") as opened:  # type: ignore[no-untyped-call]
                count += sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            return f"{file.name} can't be read ({error}); the estimate uses only config.json"
    if not count or abs(count - parameters) <= _APART * parameters:
        return ""
    return (
        f"its weight files have {count:,} parameters, but its configuration gives {parameters:,}; the estimate uses "
        "the configuration"
    )
