"""Export once: try the ways in order, and cache the first export that is right.

Shared by all runtimes. An export that gives other numbers than torch on the runtime's own CPU is refused here, so
that a later error belongs to the device and not to the conversion.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..applied_fix import current_changes
from ..errors import OutputError
from ..evidence.record import Stage
from ..files import CACHE_VARIABLE, cache_folder, one_at_a_time, work_folder
from ..model.model_types import ModelInput, Unsupported
from ..step_times import timed_step
from .exported import Exported, Opened, Opener
from .verify_export import Proof, held_inputs, keep_passes, was_of

if TYPE_CHECKING:
    from ..model.model_types import Inputs

Way = Callable[[ModelInput, "Inputs", Path], Exported]
Ways = Sequence[tuple[str, Way]]
Prove = Callable[[Exported, Proof, Opener], tuple[Exported, float]]
"""Function that compares an export with torch: returns the export with its new facts, and its error."""

log = logging.getLogger(__name__)

_VERIFIED = "verified.json"
_LONGEST_REASON = 600


@dataclass(frozen=True, kw_only=True)
class Route:
    """How models get into one runtime's format.

    `ways` are tried in order; `runtime` names where an export is verified; `packages` are those whose versions change
    an export. `refused` maps a converter's message before unsupported operators to ours. `best` is the way that needs
    no reason why others weren't used. `decodes` says whether such an export may decode.
    """

    ways: Ways
    prove: Prove
    runtime: str
    packages: Sequence[str]
    refused: Mapping[str, str]
    best: str = ""
    decodes: bool = False


def export_once(model_input: ModelInput, example: Inputs, open_on_cpu: Opener, route: Route) -> Exported:
    """Return the export of a torch module, from the cache or made now.

    Raises `Unsupported` with every way's reason if none is right; stage and error type are the last way's:
    `export_failed` or `unsupported_operator` (stage `export`), `export_failed` if the result doesn't run and
    `conversion_wrong` if it gives other numbers than torch (stage `convert`).
    """
    import torch

    from ..model.calls import in_dtype

    in_dtype(model_input.model, torch.float32)  # a library may build parts of a model wider than the rest
    kept = cache_folder("exports") / _key(model_input, example, route)
    found = _read(kept)
    if found is not None and not was_of(kept, model_input):
        log.info("%s was exported from another version of the module", kept.name)
        with one_at_a_time(kept.parent):
            shutil.rmtree(kept, ignore_errors=True)
        found = None
    if found is None:
        with timed_step("export"):
            return _export_into(kept, model_input, example, open_on_cpu, route)
    return found


def _key(model_input: ModelInput, example: Inputs, route: Route) -> str:
    numbers = held_inputs(example)
    shapes = {name: array.tolist() if name in numbers else list(array.shape) for name, array in example.items()}
    files = (path for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in (".py", ".toml"))
    sources = [path.read_text(encoding="utf-8") for path in files]  # a changed exporter gives another export
    changed = current_changes().of_export  # an export of a changed model is never used for the model
    how = [
        changed,
        versions_of(route.packages),
        sources_of(tuple(route.packages)),
        [name for name, _ in route.ways],
        sources,
    ]
    text = json.dumps([model_input.identity, model_input.task, shapes, how], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def versions_of(packages: Sequence[str]) -> str:
    """Return the installed of these packages, with their versions."""
    found = []
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{package}=={metadata.version(package)}")
    return " ".join(found)


@functools.cache
def sources_of(packages: tuple[str, ...]) -> str:
    """Return a hash of sizes and times of the packages' sources, so that an edited package exports anew."""
    digest = hashlib.sha256()
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            for file in metadata.files(package) or ():
                with contextlib.suppress(OSError):  # listed, and removed since
                    if file.suffix == ".py":
                        found = os.stat(str(file.locate()))
                        digest.update(f"{file}{found.st_size}{found.st_mtime_ns}".encode())
    return digest.hexdigest()


def _files_in(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an export, by its path in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _VERIFIED)
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(folder: Path) -> Exported | None:
    """Return a verified export from the cache; None if there is none, or if its files changed."""
    try:
        facts = json.loads((folder / _VERIFIED).read_text(encoding="utf-8"))
        if facts["files"] != _files_in(folder):
            return None
        names = {field.name for field in fields(Exported)} - {"folder"}
        return Exported(folder=folder, **{name: facts[name] for name in names})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _export_into(kept: Path, model_input: ModelInput, example: Inputs, open_on_cpu: Opener, route: Route) -> Exported:
    with work_folder(kept.parent, "export-") as work:
        started = time.perf_counter()
        with contextlib.redirect_stdout(None), _quiet_logging():
            proof = Proof.of(model_input, example, route.runtime, decodes=route.decodes)
            made, error = _first_right(proof, open_on_cpu, work, route)
        keep_passes(made.folder, proof)
        took = time.perf_counter() - started
        facts = {**made.facts(), "error": error, "seconds": took, "files": _files_in(made.folder)}
        (made.folder / _VERIFIED).write_text(json.dumps(facts), encoding="utf-8")
        with one_at_a_time(kept.parent):
            if kept.exists() and _read(kept) is None:
                shutil.rmtree(kept, ignore_errors=True)  # half removed by a process that was killed
            with contextlib.suppress(OSError):  # another process was faster: its export is as good
                os.replace(made.folder, kept)
            found = _read(kept)
        if found is None:
            raise OutputError(
                f"the export could not be saved in {kept}", fix=f"Set {CACHE_VARIABLE} to another folder."
            )
        return found


@contextlib.contextmanager
def _quiet_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):  # tracing warns of every Python branch; the result is verified
            yield
    finally:
        logging.disable(before)


def _first_right(proof: Proof, open_on_cpu: Opener, work: Path, route: Route) -> tuple[Exported, float]:
    """Return the first export that gives torch's numbers, and its error."""
    refused: list[tuple[str, Unsupported]] = []
    for number, (name, way) in enumerate(route.ways):
        folder = work / str(number)
        folder.mkdir()
        try:
            made = _made(way, proof, folder, route.refused)
            made, error = route.prove(made, proof, open_on_cpu)
        except Unsupported as reason:
            refused.append((name, reason))
            continue
        reasons = "; ".join(f"{way}: {reason}" for way, reason in refused)
        return replace(made, why_not_exporter="" if made.method == route.best else reasons), error
    last = refused[-1][1]
    raise Unsupported(
        "; ".join(f"{way}: {reason}" for way, reason in refused), error_type=last.error_type, stage=last.stage
    ) from last


def _made(way: Way, proof: Proof, folder: Path, refused: Mapping[str, str]) -> Exported:
    try:
        return way(proof.model_input, proof.example, folder)
    except (Unsupported, MemoryError):
        raise
    except ImportError as error:
        raise _refusal(f"a package is missing ({error})") from error
    except Exception as error:  # exporters raise any error; the reason is kept
        raise export_failure(error, refused) from error


def opened(open_on_cpu: Opener, made: Exported) -> Opened:
    """Open an export to verify it. Raises `Unsupported` with the runtime's reason."""
    try:
        return open_on_cpu(made)
    except (Unsupported, MemoryError):
        raise
    except Exception as error:  # errors of the runtime, and of the library around it
        reason = f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}"
        raise _refusal(f"the {made.method} export can't be opened: {reason}", stage=Stage.CONVERT) from error


def _refusal(reason: str, *, error_type: str = "export_failed", stage: Stage = Stage.EXPORT) -> Unsupported:
    return Unsupported(reason, error_type=error_type, stage=stage)


def export_failure(error: Exception, refused: Mapping[str, str]) -> Unsupported:
    """Return the exporter's reason as an error that names operators that it can't convert."""
    text = str(error)
    for sign, what in refused.items():
        _, found, rest = text.partition(sign)
        if found:
            return _refusal(f"{what} {rest.splitlines()[0].strip()}", error_type="unsupported_operator")
    return _refusal(f"{type(error).__name__}: {' '.join(text.split())[:_LONGEST_REASON]}")
