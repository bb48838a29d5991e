"""Which tests come by a line: all run once, and coverage notes for each line the tests in whose time it ran.

What runs in a child of a test isn't seen; `areas.toml` names the tests of whole runs (`also`) that ask it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from .copies import Copy

QUICK = ("test/unit", "test/meta", "test/recorded")
_SETTINGS = """
[run]
branch = false
disable_warnings = no-data-collected, module-not-measured
source = hardware, generators, reports
"""
LONGEST_S = 3600.0


class Covering:
    """Tests by file and line. A test is named as pytest does: `test/unit/test_cell.py::test_parses[bert]`."""

    def __init__(self, tests: dict[str, dict[str, list[int]]], seconds: dict[str, float], names: list[str]) -> None:
        self._tests, self._seconds, self._names = tests, seconds, names

    def of(self, file: str, line: int | None = None) -> list[str]:
        """The tests that ran the line, or any of the file, the quickest first; of a function of many cases, each."""
        lines = self._tests.get(file, {})
        ran = lines.values() if line is None else [lines.get(str(line), [])]
        found = {self._names[number] for numbers in ran for number in numbers}
        return sorted(found, key=lambda name: (self._seconds.get(name, 0.0), name))

    def seconds(self, test: str) -> float:
        """How long a test took."""
        return self._seconds.get(test, 0.0)

    @classmethod
    def read(cls, path: Path) -> Covering:
        """What `measure` kept."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["tests"], data["seconds"], data["names"])


def measure(copy: Copy, path: Path) -> None:
    """Run all quick tests in an unchanged copy of the tree, and write which of them came by which line."""
    settings, report = copy.folder / ".coveragerc", copy.folder / "junit.xml"
    settings.write_text(_SETTINGS, encoding="utf-8")
    words = ["--cov", "--cov-config", str(settings), "--cov-context=test", "--cov-report=", f"--junit-xml={report}"]
    asked = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*asked, *words, *QUICK],
        cwd=copy.folder,
        env=copy.environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    if ran.returncode:
        raise RuntimeError(f"the tests of the unchanged tree fail:\n{ran.stdout[-3000:]}")
    path.write_text(json.dumps(_gathered(copy.folder)), encoding="utf-8")


def _gathered(folder: Path) -> dict[str, object]:
    import coverage

    data = coverage.CoverageData(str(folder / ".coverage"))
    data.read()
    numbers: dict[str, int] = {}
    tests: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        lines = defaultdict(list)
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                # `NODEID|setup`, `|run` or `|teardown`; the empty one is what ran when modules were imported.
                name = context.rpartition("|")[0]
                if name:
                    lines[str(line)].append(numbers.setdefault(name, len(numbers)))
        tests[os.path.relpath(file, folder)] = {line: sorted(set(found)) for line, found in lines.items()}
    return {"tests": tests, "names": list(numbers), "seconds": _seconds(folder / "junit.xml")}


def _seconds(report: Path) -> dict[str, float]:
    import xml.etree.ElementTree as ElementTree

    found: dict[str, float] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.attrib["classname"].replace(".", "/")
        found[f"{file}.py::{case.attrib['name']}"] = float(case.attrib.get("time", 0))
    return found
