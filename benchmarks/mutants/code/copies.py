"""Copies of the tree in which faults are made; the working tree is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hardware.files import CACHE_VARIABLE

from .drawing import ROOT, CodeMutant


class Copy:
    """A copy of the tracked files, with links to the environments of the tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        self._cache = folder / "cache"

    def environment(self) -> dict[str, str]:
        """Return variables for a child in this copy, with a new cache, so that a faulty export isn't reused."""
        shutil.rmtree(self._cache, ignore_errors=True)
        return {
            **os.environ,
            CACHE_VARIABLE: str(self._cache),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def with_fault(self, mutant: CodeMutant) -> Iterator[int | None]:
        """Make one fault in the context; yield its line number, or None if its site is gone."""
        path = self.folder / mutant.file
        whole = path.read_bytes() if path.is_file() else b""
        text = whole.decode()
        made = mutant.made(text) if text else None
        if made is None:
            yield None
            return
        path.write_text(made, encoding="utf-8")
        try:
            yield mutant.line(text)
        finally:
            path.write_bytes(whole)


@contextmanager
def tree_copy() -> Iterator[Copy]:
    """Copy the tracked files in their current state."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-mutants-") as name:
        copy = Copy(Path(name).resolve())
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for file in filter(None, listed.stdout.split("\0")):
            if (ROOT / file).is_file():
                (copy.folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, copy.folder / file)
        for environment in ROOT.glob(".venv*"):
            (copy.folder / environment.name).symlink_to(environment.resolve())
        for words in (["init", "-q"], ["add", "--all"]):  # Tests list the project's files with git.
            subprocess.run(["git", *words], cwd=copy.folder, check=True, stdout=sys.stderr)
        yield copy
