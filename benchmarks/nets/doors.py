"""Query the product's command line and public names from outside."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

PROBE = Path(__file__).with_name("probe.py")
AT_ONCE = 2
"""The number of concurrent child processes."""

_Asked = TypeVar("_Asked")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a command line."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its JSON. Raises `ValueError` if it printed none."""
        try:
            return json.loads(self.out)
        except ValueError as error:
            raise ValueError(f"exit code {self.code} without JSON: {self.err.strip()[:200]}") from error


class Product:
    """A checkout of the product, run with empty folders as working directory and cache.

    `root` is the checkout, `scratch` a folder for all that it writes.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        self.scratch = scratch

    def folder(self) -> Path:
        """Make an empty folder."""
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def run(self, line: Sequence[str], folder: Path | None = None) -> Answer:
        """Run a command line in a child process, by default in a new folder.

        `line` begins with a script of the checkout, or with `-m` and a module.
        """
        first = [] if line[0] == "-m" else [str(self.root / line[0])]
        command = [sys.executable, *(first or ["-m"]), *line[1:]]
        done = subprocess.run(
            command,
            cwd=folder or self.folder(),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        return Answer(code=done.returncode, out=self._plain(done.stdout), err=self._plain(done.stderr))

    def each(self, lines: Sequence[Sequence[str]]) -> list[Answer]:
        """Run each command line in a child process and a new folder, some concurrently."""
        return self.each_of(self.run, lines)

    def each_of(self, ask: Callable[[_Asked], Answer], asked: Sequence[_Asked]) -> list[Answer]:
        """Return the result of `ask` for each, some concurrently."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, asked))

    def many(self, lines: Sequence[Sequence[str]]) -> Iterator[Answer]:
        """Run many command lines in a few processes that import the product once."""
        shares = [lines[start::AT_ONCE] for start in range(AT_ONCE)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda share: self._probe("lines", share), shares))
        turns = itertools.zip_longest(*answers)
        for code, out, err in (one for turn in turns for one in turn if one is not None):
            yield Answer(code=code, out=self._plain(out), err=self._plain(err))

    def names(self, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Describe public names, each a module and a name in it."""
        return self._probe("names", names)

    def _probe(self, what: str, questions: Sequence[Any]) -> list[Any]:
        folder = self.folder()
        file = folder / "answers"
        subprocess.run(
            [sys.executable, "-P", str(PROBE), what, str(self.root), str(file)],
            cwd=folder,
            env=self._environment(),
            input=json.dumps(list(questions)),
            encoding="utf-8",
            check=True,
        )
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def _environment(self) -> dict[str, str]:
        ours = ("HWCOMPAT_", "PYTHON", "RAY_", "GITHUB_", "FORCE_COLOR", "CLICOLOR")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept.pop("LOGLEVEL", None)
        return kept | {
            "PYTHONPATH": str(self.root),
            "HWCOMPAT_CACHE": str(self.scratch / "cache"),
            "COLUMNS": "100",
            "LINES": "24",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "LC_ALL": "C.UTF-8",
            "HF_HUB_OFFLINE": "1",
        }

    def _plain(self, text: str) -> str:
        """Return a text without paths of this machine."""
        for folder, name in ((Path(sys.executable), "PYTHON"), (self.scratch, "SCRATCH"), (self.root, "ROOT")):
            text = text.replace(str(folder), name)
        return text
