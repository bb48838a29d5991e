"""Exports a torch module to OpenVINO: the ways are tried in order, and the first that proves right is kept.

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
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.base import ModelSubject, Unsupported
from ..errors import OutputError
from ..evidence.record import Stage
from ..paths import CACHE_VARIABLE, cache_folder
from . import decoding, exporter, tracing
from .exported import ENCODER, PROMPT, STEP, Exported, Opened, Opener
from .verification import Proof

if TYPE_CHECKING:
    from ..backends.base import Inputs

Way = Callable[[ModelSubject, "Inputs", Path], Exported]
Ways = Sequence[tuple[str, Way]]

_TRACE: tuple[str, Way] = ("convert_model", tracing.with_convert_model)
_VERIFIED = "verified.json"
_OPERATORS = {
    "No conversion rule found for operations: ": "no conversion rule for",
    "Conversion is failed for: ": "the conversion rule fails for",
}
"""What OpenVINO's converter says before the operators that it can't convert, and what we say."""

_LONGEST_REASON = 600


def quiet_telemetry() -> None:
    """Switch off what OpenVINO and its tools would send, before they are imported."""
    os.environ["CI"] = "true"  # `import openvino` looks for this very word
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def export_openvino(
    subject: ModelSubject, example: Inputs, open_on_cpu: Opener, *, traced_anew: bool = False
) -> Exported:
    """The OpenVINO model of a torch module, from the cache or made now.

    With `traced_anew` it is the forward pass alone of a model whose trace is static, for the shapes of `example`.

    Tries optimum-intel's exporter, the same beyond the versions that it states, then `openvino.convert_model`.
    Raises `Unsupported` with every way's reason when none is right; stage and error type are the last way's:
    `export_failed` or `unsupported_operator` (stage `export`), `export_failed` where the result doesn't run
    and `conversion_wrong` where it gives other numbers than torch (stage `convert`).
    """
    quiet_telemetry()
    if traced_anew:
        subject = replace(subject, generates="none")
    ways = (_TRACE,) if traced_anew else tuple(_ways(subject))
    kept = cache_folder("exports") / _key(subject, example, ways)
    found = _read(kept)
    return found if found is not None else _export_into(kept, subject, example, open_on_cpu, ways)


def _key(subject: ModelSubject, example: Inputs, ways: Ways) -> str:
    shapes = {name: list(array.shape) for name, array in example.items()}
    files = (path for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in (".py", ".toml"))
    sources = [path.read_text(encoding="utf-8") for path in files]  # another way of exporting gives another export
    how = [_exporter_versions(), [name for name, _ in ways], sources]
    text = json.dumps([subject.identity, subject.task, shapes, how], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _exporter_versions() -> str:
    found = []
    for package in ("openvino", "optimum-intel", "nncf"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package}=={metadata.version(package)}")
    return " ".join(found)


def _read(folder: Path) -> Exported | None:
    """What an earlier export wrote when it was verified; None where there is none."""
    try:
        facts = json.loads((folder / _VERIFIED).read_text(encoding="utf-8"))
        names = {field.name for field in fields(Exported)} - {"folder"}
        return Exported(folder=folder, **{name: facts[name] for name in names})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _export_into(kept: Path, subject: ModelSubject, example: Inputs, open_on_cpu: Opener, ways: Ways) -> Exported:
    work = Path(tempfile.mkdtemp(prefix="export-", dir=kept.parent))
    try:
        started = time.perf_counter()
        with contextlib.redirect_stdout(None), _quiet_logging():
            made, error = _first_right(Proof.of(subject, example), open_on_cpu, work, ways)
        facts = {**made.facts(), "error": error, "seconds": time.perf_counter() - started}
        (made.folder / _VERIFIED).write_text(json.dumps(facts), encoding="utf-8")
        if kept.exists() and _read(kept) is None:
            shutil.rmtree(kept, ignore_errors=True)  # left half-made by a process that was killed
        with contextlib.suppress(OSError):  # another process was faster: its export is as good as ours
            os.replace(made.folder, kept)
        found = _read(kept)
        if found is None:
            raise OutputError(
                f"the export could not be kept in {kept}", fix=f"Name another folder in {CACHE_VARIABLE}."
            )
        return found
    finally:
        shutil.rmtree(work, ignore_errors=True)


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


def _ways(subject: ModelSubject) -> Iterator[tuple[str, Way]]:
    yield "optimum-intel", exporter.with_exporter
    if exporter.limit_of(subject):
        yield "optimum-intel beyond its limit", exporter.beyond_limit
    yield _TRACE


def _first_right(proof: Proof, open_on_cpu: Opener, work: Path, ways: Ways) -> tuple[Exported, float]:
    """The first export that gives torch's numbers, and its error."""
    refused: list[tuple[str, Unsupported]] = []
    for number, (name, way) in enumerate(ways):
        folder = work / str(number)
        folder.mkdir()
        try:
            made = _made(way, proof, folder)
            if made.method == "convert_model":
                made, error = _proven_trace(made, proof, open_on_cpu)
            else:
                error = proof.of_all(_opened(open_on_cpu, made), made)
        except Unsupported as reason:
            refused.append((name, reason))
            continue
        said = "; ".join(f"{way}: {reason}" for way, reason in refused)
        return replace(made, why_not_exporter=said if made.method == "convert_model" else ""), error
    last = refused[-1][1]
    raise Unsupported(
        "; ".join(f"{way}: {reason}" for way, reason in refused), error_type=last.error_type, stage=last.stage
    ) from last


def _made(way: Way, proof: Proof, folder: Path) -> Exported:
    try:
        return way(proof.subject, proof.example, folder)
    except (Unsupported, MemoryError):
        raise
    except ImportError as error:
        raise _refusal(f"a package is missing ({error})") from error
    except Exception as error:  # exporters raise whatever they met; their reason is kept
        raise _export_failure(error) from error


def _opened(open_on_cpu: Opener, made: Exported) -> Opened:
    try:
        return open_on_cpu(made)
    except (Unsupported, MemoryError):
        raise
    except Exception as error:  # the runtime's, and those of the library around it
        reason = f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}"
        raise _refusal(f"the {made.method} export can't be opened: {reason}", stage=Stage.CONVERT) from error


def _refusal(reason: str, *, error_type: str = "export_failed", stage: Stage = Stage.EXPORT) -> Unsupported:
    return Unsupported(reason, error_type=error_type, stage=stage)


def _export_failure(error: Exception) -> Unsupported:
    """The exporter's own reason; operators that it can't convert stand in it by their names."""
    text = str(error)
    for sign, what in _OPERATORS.items():
        _, found, rest = text.partition(sign)
        if found:
            return _refusal(f"{what} {rest.splitlines()[0].strip()}", error_type="unsupported_operator")
    return _refusal(f"{type(error).__name__}: {' '.join(text.split())[:_LONGEST_REASON]}")


def _proven_trace(made: Exported, proof: Proof, open_on_cpu: Opener) -> tuple[Exported, float]:
    """A traced export, whether it holds for other shapes, and with graphs that decode or why there are none."""
    opened = _opened(open_on_cpu, made)
    error = proof.of_forward(opened, made)
    try:
        proof.of_other_shapes(opened, made)
    except Unsupported:  # the runtime refuses shapes that the trace froze, or computes with what it froze
        made = replace(made, static=True)
    if proof.subject.generates == "none":
        return made, error
    decodes = replace(made, decodes=True)
    try:
        decoding.write_decoding(proof.subject, proof.example, made.folder, static=made.static)
        proof.of_decoding(open_on_cpu(decodes), decodes)
    except MemoryError:
        raise
    except Exception as problem:  # as for the forward pass: whatever the library or the converter met
        for file in (ENCODER, PROMPT, STEP):
            for part in (made.folder / file, (made.folder / file).with_suffix(".bin")):
                part.unlink(missing_ok=True)
        reason = problem if isinstance(problem, Unsupported) else _export_failure(problem)
        return replace(made, why_no_cache=str(reason)), error
    return decodes, error
