"""Builds the package from what git keeps, away from the repository, and runs programs where it was installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 600
IN_WHEEL = ("hardware", "generators", "reports", "hwcompat", "templates")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def kept_by_git(*places: str) -> list[str]:
    """The files below `places` that git keeps, or would after `git add`."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def run(words: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program in a folder, with no variable that leads Python back to the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        words, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def pip(python: str, folder: Path, *words: str) -> None:
    done = run([python, *_PIP, *words], folder)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True, kw_only=True)
class Built:
    """A wheel, and the sdist that it was built from."""

    wheel: Path
    sdist: Path

    def names(self) -> dict[str, bytes]:
        """The files of the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def told(self, name: str) -> str:
        """A file of the wheel's `dist-info`."""
        (found,) = [data for path, data in self.names().items() if path.endswith(f".dist-info/{name}")]
        return found.decode()


def found_in(folder: Path) -> Built:
    """What was built before."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel=wheel, sdist=sdist)


def build(folder: Path, names: Sequence[str] = ()) -> Built:
    """Sdist and, out of it alone, the wheel: with the setuptools that is here, and nothing fetched.

    From the files called `names`, or from all that git keeps.
    """
    source, out = folder / "source", folder / "dist"
    for name in names or kept_by_git():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    out.mkdir(parents=True)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    done = run([sys.executable, "-c", code], source)
    assert done.returncode == 0, done.stderr
    (sdist,) = out.glob("*.tar.gz")
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    pip(sys.executable, folder, "wheel", *offline, "--wheel-dir", str(out), str(sdist))
    return found_in(out)


def foreign_folder(path: Path) -> Path:
    """A user's folder whose packages are called as ours are; whoever imports one of them fails."""
    for name in IN_WHEEL:
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text("raise RuntimeError('a package of the user was imported')\n")
    return path
