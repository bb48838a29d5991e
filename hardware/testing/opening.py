"""Opens a checkpoint's files as a model of transformers, or says what is wrong with the files or the configuration.

What `--run` loads and what `--check-model` asks is this one function, so that both refuse the same checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoint_config import settings_of
from ..errors import ModelRefused, echo
from ..untrusted import read_bytes, read_json

if TYPE_CHECKING:
    import torch

_PACKED = (
    ".qweight",
    ".qzeros",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
    ".absmax",
    ".SCB",
    "_blocks",
)
"""How the names of quantized weights end."""
_ELSEWHERE = re.compile(r"(paged\|)?(flash_attention_\d|flex_attention)")
"""Ways to compute attention that the reference on the CPU doesn't have."""
_LFS = b"version https://git-lfs"
_LONGEST_CONFIG = 10 * 2**20
_SHOWN = 3
_SHORTEST_NAME = 3
"""A setting with so short a name may stand in any sentence."""


def open_files(
    model_class: type[Any], folder: Path, files: Sequence[Path], *, empty: bool = False
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """The model of `model_class` in float32 on the CPU, and remarks: weights that the class doesn't take, or an
    attention that was replaced.

    With `empty` the weights have names and shapes, and their numbers aren't read. Raises `ModelRefused`.
    """
    import torch

    where = echo(str(folder))
    config, remarks = _configuration(model_class, folder)
    try:
        model, info = model_class.from_pretrained(
            str(folder),
            config=config,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **(_without_numbers() if empty else {"dtype": torch.float32}),
            ignore_mismatched_sizes=True,  # refused below, with names and sizes
        )
    except Exception as error:  # loaders raise their own classes; each means that the files can't be used
        raise _not_loaded(model_class, folder, files, config, error) from error
    if others := sorted(info["mismatched_keys"]):
        raise _not_fitting(where, config, others)
    if missing := sorted(map(str, info["missing_keys"])):
        packed = any(str(name).endswith(_PACKED) for name in info["unexpected_keys"])
        raise ModelRefused(
            f"the checkpoint {where} is not complete",
            why=f"{len(missing)} weights of {model_class.__name__} are missing, the first is {echo(missing[0])}"
            + ("; the names of others are those of quantized weights" if packed else ""),
            fix="Test the checkpoint that it was quantized from."
            if packed
            else "Fetch config.json and all weights again, from one revision.",
            error_type="unsupported_format" if packed else "corrupt_checkpoint",
        )
    loaded: torch.nn.Module = model.eval()
    return loaded, (*remarks, *_unused(model_class, info["unexpected_keys"]))


def _without_numbers() -> dict[str, Any]:
    """How the library reads names and shapes alone; without accelerate it maps the files into memory as they are."""
    from transformers.utils import is_accelerate_available

    return {"device_map": "meta"} if is_accelerate_available() else {"dtype": "auto"}


def _configuration(model_class: type[Any], folder: Path) -> tuple[Any, list[str]]:
    """What config.json makes, and remarks on it. Raises `ModelRefused`."""
    try:
        config = model_class.config_class.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a constructor raises whatever it likes; each means that the values can't be used
        raise _config_invalid(model_class, folder, error) from error
    asked = sorted(set(filter(None, _attention_of(config))))
    if not any(_ELSEWHERE.fullmatch(one) for one in asked):
        return config, []
    config._attn_implementation = None  # of its parts too; the library takes the best that it has here
    said = f"config.json sets attn_implementation to {', '.join(map(echo, asked))}"
    return config, [f"{said}, which the CPU's reference doesn't have: the library's own choice is tested instead"]


def _attention_of(config: Any) -> Iterator[str]:
    yield getattr(config, "_attn_implementation", None) or ""
    for name in getattr(config, "sub_configs", {}):
        if (part := getattr(config, name, None)) is not None:
            yield from _attention_of(part)


def _not_loaded(
    model_class: type[Any], folder: Path, files: Sequence[Path], config: Any, error: Exception
) -> ModelRefused:
    import torch

    for path in files:
        if path.stat().st_size < 1024 and read_bytes(path, longest=1024).startswith(_LFS):
            return ModelRefused(
                f"the checkpoint {echo(str(folder))} has no weights",
                why=f"{echo(path.name)} is a pointer of Git LFS, not the file itself",
                fix="Fetch the files with: git lfs pull",
            )
    try:
        with torch.device("meta"):
            model_class(config)
    except Exception as own:  # what the configuration alone raises isn't the weights' fault
        return _config_invalid(model_class, folder, own)
    return ModelRefused(
        f"the checkpoint {echo(str(folder))} cannot be loaded as {model_class.__name__}",
        why=_said(error),
        fix="Fetch it again.",
    )


def _config_invalid(model_class: type[Any], folder: Path, error: Exception) -> ModelRefused:
    field = _field_of(error, read_json(folder / "config.json", longest=_LONGEST_CONFIG, finite=False))
    return ModelRefused(
        f"config.json in {echo(str(folder))} makes no {model_class.__name__}",
        why=f"{field}: {_said(error)}" if field else _said(error),
        fix=f"Correct {field or 'it'}, or fetch it again.",
        error_type="config_invalid",
    )


def _field_of(error: Exception, config: Mapping[str, Any]) -> str:
    """The setting that an error is about: that of rotary positions if their code raised it, or one that it names."""
    settings = list(settings_of(config))
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith("modeling_rope_utils.py"):
            found = (name for name, value in settings if name.startswith("rope_") and isinstance(value, Mapping))
            return next(found, "rope_parameters")
        trace = trace.tb_next
    text = str(error)
    for name in sorted({name for name, _ in settings}, key=len, reverse=True):
        if len(name) > _SHORTEST_NAME and re.search(rf"\b{re.escape(name)}\b", text):
            return name
    return next((name for name, value in settings if isinstance(value, str) and error.args == (value,)), "")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _not_fitting(where: str, config: Any, others: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> ModelRefused:
    """The refusal of weights that have other sizes than the configuration makes."""
    name, kept, made = others[0]
    sizes = [size for one, size in zip(kept, made, strict=False) if one != size]
    fields = [f"{field} {value}" for field, value in settings_of(config.to_dict()) if value in sizes and value != 1]
    because = f" ({', '.join(dict.fromkeys(fields))})" if fields else ""
    return ModelRefused(
        f"the weights of the checkpoint {where} don't fit its config.json",
        why=f"{len(others)} have other sizes, the first is {echo(name)}: {tuple(kept)} in the file, {tuple(made)} by "
        f"config.json{because}",
        fix="Fetch both from one revision, or save the model again after it was changed.",
        error_type="config_invalid",
    )


def _unused(model_class: type[Any], names: Sequence[str]) -> Iterator[str]:
    if found := sorted(map(str, names)):
        more = ", …" if len(found) > _SHOWN else ""
        yield (
            f"{len(found)} weight(s) of the checkpoint aren't used by {model_class.__name__} and aren't tested: "
            f"{', '.join(found[:_SHOWN])}{more}"
        )
