"""A folder with transformers' sources and tests, as its repository has them: its version, and the tests of a type."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware.errors import BrokenInput, ModelError, UsageError, echo

LIBRARY = "transformers"

_SOURCE = Path("src", LIBRARY, "__init__.py")
_VERSION = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """Where it lies, and the version that its source states."""

    folder: Path
    version: str

    def tests_of(self, names: Sequence[tuple[str, str]]) -> Path:
        """The file with the tests of a model: the first `tests/models/<folder>/test_modeling_<module>.py` that is
        there for a pair of `names`, or the only one of the first module's name in any folder. Raises `ModelError`."""
        models = self.folder / "tests" / "models"
        for folder, module in names:
            path = models / folder / f"test_modeling_{module}.py"
            if path.is_file():
                return path
        name = f"test_modeling_{names[0][1]}.py"
        elsewhere = sorted(models.glob(f"*/{name}"))
        if len(elsewhere) == 1:
            return elsewhere[0]
        raise ModelError(
            f"{echo(str(self.folder))} has no tests of {names[0][0]}",
            why=f"tests/models has {'several files' if elsewhere else 'no file'} {name}",
            fix=""
            if models.is_dir()
            else "Name the root of a checkout; a source distribution has no tests of models.",
        )


def read_checkout(folder: Path) -> Checkout:
    """The checkout at `folder`. Raises `BrokenInput` where it is none or states no version."""
    if not folder.is_dir():
        raise BrokenInput(f"{echo(str(folder))} is no folder", fix=f"Name a checkout of {LIBRARY}.")
    source = folder / _SOURCE
    found = _VERSION.search(source.read_text(encoding="utf-8", errors="replace")) if source.is_file() else None
    if found is None:
        raise BrokenInput(f"{echo(str(folder))} is no checkout of {LIBRARY}", why=f"{_SOURCE} states no version")
    return Checkout(folder=folder.resolve(), version=found[1])


def agree_with_installed(checkout: Checkout) -> None:
    """Raises `UsageError`, naming both, where another version than the checkout's is installed: its tests would be of
    another library than the one that models are run with here."""
    from packaging.utils import canonicalize_version

    try:
        installed = importlib.metadata.version(LIBRARY)
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(f"{LIBRARY} isn't installed, so its tests have nothing to test") from error
    if canonicalize_version(installed) != canonicalize_version(checkout.version):
        raise UsageError(
            f"the checkout is {LIBRARY} {checkout.version}, and {installed} is installed",
            why="tests of one version say nothing of another",
            fix=f"Check out v{installed}, or install {LIBRARY}=={checkout.version}.",
        )
