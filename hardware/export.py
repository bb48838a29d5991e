"""Turns a torch module into another runtime's model: exported once, verified against torch, kept in a cache.

An export that gives other numbers than torch on the runtime's own CPU is refused here, so that a later error
belongs to the device and not to the conversion.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .backends.base import ModelSubject, Unsupported
from .errors import OutputError
from .evidence.record import Stage
from .paths import CACHE_VARIABLE, cache_folder

if TYPE_CHECKING:
    from .backends.base import Array, Inputs

Opener = Callable[["Exported"], Callable[[Mapping[str, Any]], dict[str, Any]]]
"""Opens an export on the runtime's own CPU in float32, as a function from arrays to outputs."""

_VERIFIED = "verified.json"
_VERIFY_LIMIT = 1e-4
"""Five times the float32 tolerance: both sides of this comparison are float32."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A folder with `openvino_model.xml` (or the several models of an encoder-decoder), and how it was made.

    `method` is `optimum-intel` or `convert_model`; `why_not_exporter` says why the first wasn't used. With
    `static` the model is right for the shapes of its example only: tracing froze loops over the length.
    """

    folder: Path
    method: str
    why_not_exporter: str = ""
    static: bool = False


def quiet_telemetry() -> None:
    """Switch off what OpenVINO and its tools would send, before they are imported."""
    os.environ["CI"] = "true"  # `import openvino` looks for this very word
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def export_openvino(subject: ModelSubject, example: Inputs, open_on_cpu: Opener) -> Exported:
    """The OpenVINO model of a torch module, from the cache or made now.

    Tries optimum-intel's exporter, then `openvino.convert_model`. Raises `Unsupported` with error type
    `export_failed` when neither works (stage `export`) or the result doesn't run (stage `convert`),
    `conversion_wrong` (stage `convert`) when it gives other numbers than torch, and what the opener raises.
    """
    quiet_telemetry()
    kept = cache_folder("exports") / _key(subject, example)
    facts = _read_facts(kept)
    if facts is None:
        facts = _export_into(kept, subject, example, open_on_cpu)
    return Exported(folder=kept, **facts)


def _key(subject: ModelSubject, example: Inputs) -> str:
    shapes = {name: list(array.shape) for name, array in example.items()}
    text = json.dumps([subject.identity, subject.task, _exporter_versions(), shapes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read_facts(folder: Path) -> dict[str, Any] | None:
    """What an earlier export wrote when it was verified; None where there is none."""
    try:
        facts = json.loads((folder / _VERIFIED).read_text(encoding="utf-8"))
        return {name: facts[name] for name in ("method", "why_not_exporter", "static")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _export_into(kept: Path, subject: ModelSubject, example: Inputs, open_on_cpu: Opener) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp(prefix="export-", dir=kept.parent))
    try:
        with contextlib.redirect_stdout(None), _quiet_logging():
            expected = _torch_outputs(subject, example)
            made = _export(subject, example, work)
            error = _verify(open_on_cpu(made), made.method, subject, example, expected)
            static = made.method == "convert_model" and not _holds_for_other_shapes(
                open_on_cpu, made, subject, example
            )
        facts = {"method": made.method, "why_not_exporter": made.why_not_exporter, "static": static}
        (work / _VERIFIED).write_text(json.dumps({**facts, "error": error}), encoding="utf-8")
        if kept.exists() and _read_facts(kept) is None:
            shutil.rmtree(kept, ignore_errors=True)  # left half-made by a process that was killed
        with contextlib.suppress(OSError):  # another process was faster: its export is as good as ours
            os.replace(work, kept)
        if _read_facts(kept) is None:
            raise OutputError(
                f"the export could not be kept in {kept}", fix=f"Name another folder in {CACHE_VARIABLE}."
            )
        return facts
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _holds_for_other_shapes(open_on_cpu: Opener, made: Exported, subject: ModelSubject, example: Inputs) -> bool:
    """Whether the export is right for one row, two positions shorter, as well."""
    from .testing.parity import compare

    smaller = {name: array[:1, 2:] if array.ndim == 2 else array[:1] for name, array in example.items()}
    try:
        got = open_on_cpu(made)(smaller)
    except RuntimeError:  # the runtime refuses shapes that the trace froze
        return False
    want = _torch_outputs(subject, smaller)
    return compare(got, want, masks=_masks(subject, smaller)).max_rel_error <= _VERIFY_LIMIT


def _exporter_versions() -> str:
    found = []
    for package in ("openvino", "optimum-intel", "nncf"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package}=={metadata.version(package)}")
    return " ".join(found)


@contextlib.contextmanager
def _quiet_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing warns of every Python branch; the result is verified
            yield
    finally:
        logging.disable(before)


def _torch_outputs(subject: ModelSubject, example: Inputs) -> dict[str, Array]:
    import torch

    from .backends._torch import forward, to_arrays, to_tensors

    with torch.no_grad():
        return to_arrays(forward(subject.model, to_tensors(example, "cpu", torch.float32)))


def _export(subject: ModelSubject, example: Inputs, folder: Path) -> Exported:
    try:
        _with_exporter(subject, folder)
        return Exported(folder=folder, method="optimum-intel")
    except ImportError as error:
        reason = f"optimum-intel isn't installed ({error})"
    except Exception as error:  # the exporter raises whatever it met; its reason is kept
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    try:
        _with_convert_model(subject, example, folder)
    except Exception as error:
        raise Unsupported(
            f"optimum-intel: {reason}; convert_model: {type(error).__name__}: {str(error)[:600]}",
            error_type="export_failed",
            stage=Stage.EXPORT,
        ) from error
    return Exported(folder=folder, method="convert_model", why_not_exporter=reason)


def _with_exporter(subject: ModelSubject, folder: Path) -> None:
    from optimum.exporters.openvino import export_from_model

    model = subject.model
    config: Any = model.config
    config.architectures = [type(model).__name__]  # what save_pretrained would write; loading needs it
    task = subject.task if subject.generates == "none" else f"{subject.task}-with-past"
    export_from_model(model, folder, task=task)


def _with_convert_model(subject: ModelSubject, example: Inputs, folder: Path) -> None:
    """Trace the bare forward pass, without a cache, all axes that follow batch or length left dynamic."""
    import openvino
    import torch

    from .backends._torch import floating_outputs, to_tensors, without_cache

    names = list(example)
    model = subject.model
    wishes = without_cache(model)

    class Forward(torch.nn.Module):  # type: ignore[misc] # torch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return floating_outputs(self.model(**dict(zip(names, values, strict=True)), **wishes))

    tensors = to_tensors(example, "cpu", torch.float32)
    with torch.no_grad(), _traceable_masks():
        outputs = list(floating_outputs(model(**tensors, **wishes)))
        converted = openvino.convert_model(Forward().eval(), example_input=tuple(tensors.values()))
    for port, name in zip(converted.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(converted.inputs, names, strict=True):
        port.get_tensor().set_names({name})
        shape = port.get_partial_shape()
        rank = len(example[name].shape)
        dynamic = 2 if rank == 2 else 1
        port.get_node().set_partial_shape(
            openvino.PartialShape([-1] * dynamic + [shape[axis] for axis in range(dynamic, rank)])
        )
    converted.validate_nodes_and_infer_types()
    openvino.save_model(converted, folder / "openvino_model.xml", compress_to_fp16=False)
    model.config.save_pretrained(folder)


@contextlib.contextmanager
def _traceable_masks() -> Iterator[None]:
    """transformers builds masks with vmap, which cannot be traced; optimum-intel's replacements can."""
    try:
        from optimum.exporters.openvino.patching_utils import eager_mask_without_vmap, sdpa_mask_without_vmap
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    except ImportError:  # without optimum-intel the library's own masks are tried
        yield
        return
    before = {name: ALL_MASK_ATTENTION_FUNCTIONS[name] for name in ("sdpa", "eager")}
    ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", sdpa_mask_without_vmap)
    ALL_MASK_ATTENTION_FUNCTIONS.register("eager", eager_mask_without_vmap)
    try:
        yield
    finally:
        for name, function in before.items():
            ALL_MASK_ATTENTION_FUNCTIONS.register(name, function)


def _verify(
    opened: Callable[[Mapping[str, Array]], dict[str, Array]],
    method: str,
    subject: ModelSubject,
    example: Inputs,
    expected: Mapping[str, Array],
) -> float:
    from .testing.parity import compare

    try:
        got = opened(dict(example))
    except RuntimeError as error:
        raise Unsupported(
            f"the {method} export doesn't run on OpenVINO's own CPU device: {str(error)[:600]}",
            error_type="export_failed",
            stage=Stage.CONVERT,
        ) from error
    comparison = compare(got, expected, masks=_masks(subject, example))
    if not comparison.max_rel_error <= _VERIFY_LIMIT:
        raise Unsupported(
            f"the {method} export gives other numbers than torch on OpenVINO's own CPU device: {comparison}",
            error_type="conversion_wrong",
            stage=Stage.CONVERT,
        )
    return comparison.max_rel_error


def _masks(subject: ModelSubject, inputs: Inputs) -> dict[str, Array]:
    return {output: inputs[name] for output, name in subject.masked_by.items() if name in inputs}
