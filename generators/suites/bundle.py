"""Pack suites into one zip file for a lab, with everything they need except torch, transformers and pytest."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hwcompat.generators.models.given_recipe import GivenRecipe
from hwcompat.generators.recipes.on_demand import keep_references
from hwcompat.generators.suites.suite_files import PlannedSuite
from hwcompat.hardware.errors import OutputError, UsageError
from hwcompat.hardware.evidence.revisions import PACKED, packed_parts
from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.files import PRODUCT, ROOT, package_files, write_whole
from hwcompat.hardware.testing.bundle_runner import CACHE, FILES, SCHEMA_VERSION, SUITES, TESTED
from hwcompat.hardware.testing.graph_weights import weight_files
from hwcompat.hardware.testing.user_inputs import read_inputs

from .render import environment
from .suite_files import suite_conftest

_BESIDE_HARDWARE = ("__init__.py", "py.typed", "testing.py")
"""What a bundle contains of the package `hwcompat` itself."""
_LARGEST_FILE = 2**30
"""The most bytes of a graph file and its weights that a bundle contains."""
_MOMENT = (1980, 1, 1, 0, 0, 0)  # a fixed date gives the same bytes each time


def write_bundle(path: Path, planned: Sequence[PlannedSuite], versions: Mapping[str, str]) -> tuple[str, ...]:
    """Write the zip file and return the names in it. The same suites and versions give the same bytes.

    `versions` are those of the machine that packs. Raises `OutputError` if the file can't be written, and
    `UsageError` for a name that isn't a zip file's or for suites that import a user's own code.
    """
    if path.suffix != ".zip" or not path.stem.strip("."):  # its folder in the archive would be the parent
        raise UsageError(f"{path} isn't a zip file", fix="For example: hwcompat bundle suite.zip")
    names, data = packed(path.stem, planned, versions)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise OutputError(f"{path} can't be written", why=error.strerror or str(error)) from error
    return names


def packed(
    stem: str, planned: Sequence[PlannedSuite], versions: Mapping[str, str], texts: Mapping[str, bytes] | None = None
) -> tuple[tuple[str, ...], bytes]:
    """Return the names of a bundle's files and the bytes of its zip file; all lie below the folder `stem`.

    `texts` are suites on disk by file name, used instead of the planned ones because a person may have edited them.
    Raises `UsageError` for suites that import a user's own code.
    """
    on_disk = {f"{SUITES}/{name}": text for name, text in (texts or {}).items()}
    files = bundle_files(stem, planned, versions) | package_part() | on_disk
    return tuple(sorted(files)), zipped({f"{stem}/{name}": files[name] for name in sorted(files)})


def bundle_files(stem: str, planned: Sequence[PlannedSuite], versions: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of a bundle by name, without its package `hwcompat`. Raises `UsageError` for suites that
    import a user's own code."""
    for one in planned:
        if isinstance(one.profile.recipe, GivenRecipe) and one.profile.recipe.kind == "module":
            raise UsageError(
                f"{one.profile.asked} can't be packed",
                why="its suite imports your own code, which a bundle doesn't contain",
                fix="Leave it out with --skip, and run it on a machine with that code.",
            )
    return dict(_files(stem, planned, versions))


def package_part() -> dict[str, bytes]:
    """Return the package `hwcompat` as a bundle contains it, by name: `hwcompat.hardware`, what suites import, and
    the fingerprints of the other checking code."""
    found = {f"hardware/{name}": path for name, path in package_files(PRODUCT / "hardware").items()}
    found |= {name: ROOT / "hwcompat" / name for name in _BESIDE_HARDWARE}
    files = {f"hwcompat/{name}": path.read_bytes() for name, path in sorted(found.items())}
    packed_as = f"hwcompat/hardware/{PACKED}"
    return files | {packed_as: json.dumps(packed_parts(), indent=2, sort_keys=True).encode() + b"\n"}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of files in their order. The same files give the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date_time=_MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return data.getvalue()


def _files(stem: str, planned: Sequence[PlannedSuite], versions: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    graphs = {one.cell.model: one for one in planned if _is_packed(one)}
    folders = {one.cell.model for one in planned if one.profile.folder is not None}
    checkpoints = sorted(folders - graphs.keys())
    values = {
        "count": len(planned),
        "version": RELEASE,
        "device": str(planned[0].device),
        "ranges": ", ".join(f"{name} {range_}" for name, range_ in TESTED.items()),
        "checkpoints": ", ".join(checkpoints),
        "files": ", ".join(sorted(graphs)),
    }
    yield "run.py", _filled("bundle_run.py.j2", values)
    yield "README.md", _filled("bundle_readme.md.j2", values)
    yield f"{SUITES}/conftest.py", suite_conftest().encode()
    for suite in planned:
        yield f"{SUITES}/{suite.file_name}", suite.text.encode()
    for graph in graphs.values():
        yield from _graph_files(graph)
    yield "bundle.json", json.dumps(_contents(stem, planned, versions), indent=2, sort_keys=True).encode() + b"\n"


def _is_packed(one: PlannedSuite) -> bool:
    """Return whether a bundle contains the model: a graph file that isn't too large."""
    if not isinstance(one.profile.recipe, GivenRecipe) or one.profile.recipe.kind != "graph":
        return False
    file = Path(one.profile.asked).expanduser()
    return sum(path.stat().st_size for path in (file, *weight_files(file))) <= _LARGEST_FILE


def _graph_files(one: PlannedSuite) -> Iterator[tuple[str, bytes]]:
    """Yield a graph file with its weights, the inputs that were given for it, and the references of its suite."""
    assert isinstance(one.profile.recipe, GivenRecipe)
    file, own = Path(one.profile.asked).expanduser(), f"{FILES}/{one.cell.slug}"
    for path in (file, *weight_files(file)):
        yield f"{own}/{path.relative_to(file.parent).as_posix()}", path.read_bytes()
    given = one.profile.inputs
    for number, arrays in enumerate(read_inputs(given) if given else ()):
        data = io.BytesIO()
        np.savez(data, **arrays)  # type: ignore[arg-type]
        yield f"{own}/inputs/{number:04}.npz", data.getvalue()
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        keep_references(str(file), one.profile.recipe, str(given) if given else "", Path(name))
        for path in sorted(Path(name).rglob("*")):
            if path.is_file():
                yield f"{CACHE}/{path.relative_to(name).as_posix()}", path.read_bytes()


def _contents(stem: str, planned: Sequence[PlannedSuite], versions: Mapping[str, str]) -> dict[str, object]:
    """Return the content of `bundle.json`: each suite with its stored prediction, and whether its device was
    named."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": stem,
        "made_with": dict(versions),
        "suites": [
            {
                "file": one.file_name,
                "cell": one.cell.id,
                "required": one.required,
                "verdict": one.verdict.to_dict(),
                "selection": one.selection.to_dict() if one.selection else None,
            }
            for one in sorted(planned, key=lambda one: one.cell.id)
        ],
    }


def _filled(name: str, values: Mapping[str, object]) -> bytes:
    return (environment().get_template(name).render(values).rstrip("\n") + "\n").encode()
