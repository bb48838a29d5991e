"""The tests that cover each line: all run once under coverage with one context per test.

Child processes with the interpreter of this environment count for the whole test file, because a fixture's child
serves several tests. Other interpreters aren't measured: `areas.toml` lists their tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .children import SETTINGS
from .copies import Copy
from .drawing import HERE, ROOT

QUICK = ("test/core", "test/unit", "test/meta", "test/recorded")
_WHOLE_RUNS = ("test/device", "test/browser")
_SOURCES = ("hardware", "generators", "reports", "hwcompat")
_IN_PROCESS = """
[run]
disable_warnings = no-data-collected, module-not-measured
source = hardware, generators, reports
"""
_IN_CHILDREN = """
[run]
parallel = true
patch = _exit, fork
disable_warnings = no-data-collected, module-not-measured
context = ${{PYTEST_CURRENT_TEST-}}
data_file = {folder}/children/.coverage
source_dirs = {sources}
"""
LONGEST_S = 7200.0


class Covering:
    """Tests by file and line. A test is named as pytest does: `test/unit/test_cell.py::test_parses[bert]`."""

    def __init__(
        self,
        tests: dict[str, dict[str, list[int]]],
        seconds: dict[str, float],
        names: list[str],
        in_children: dict[str, dict[str, list[str]]] | None = None,
    ) -> None:
        self._tests, self._seconds, self._names, self._in_children = tests, seconds, names, in_children or {}

    def of(self, file: str, line: int | None = None) -> list[str]:
        """Return the tests that ran the line, or any line of the file, the fastest first."""
        lines = self._tests.get(file, {})
        ran = lines.values() if line is None else [lines.get(str(line), [])]
        found = {self._names[number] for numbers in ran for number in numbers}
        return sorted(found, key=lambda name: (self._seconds.get(name, 0.0), name))

    def ran(self, file: str, line: int) -> bool:
        """Whether the line ran in any test process, also at import; tables always count."""
        return not file.endswith(".py") or str(line) in self._tests.get(file, {})

    def beside(self, file: str) -> list[str]:
        """Return the tests that ran Python in the folder of a file or its parent, the fastest first."""
        folder = Path(file).parent
        found = {
            test for other in self._tests if Path(other).parent in (folder, folder.parent) for test in self.of(other)
        }
        return sorted(found, key=lambda name: (self._seconds.get(name, 0.0), name))

    def in_children(self, file: str, line: int) -> list[str]:
        """Return the test files whose child processes ran the line, the fastest first."""
        found = self._in_children.get(file, {}).get(str(line), [])
        return sorted(found, key=lambda name: (self.seconds(name), name))

    def seconds(self, test: str) -> float:
        """Return the time in s of a test or a test file."""
        if "::" in test:
            return self._seconds.get(test, 0.0)
        return sum(time for name, time in self._seconds.items() if name.startswith(f"{test}::"))

    @classmethod
    def read(cls, path: Path) -> Covering:
        """Read the file of `measure`."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["tests"], data["seconds"], data["names"], data["in_children"])


def unseen(file: str) -> list[str]:
    """Return the test files for a file that other interpreters run."""
    with (HERE / "areas.toml").open("rb") as opened:
        rows = tomllib.load(opened)["unseen"]
    return [
        test for row in rows for test in row["tests"] if any(_is_below(file, pattern) for pattern in row["files"])
    ]


def _is_below(file: str, pattern: str) -> bool:
    return any(path.relative_to(ROOT).as_posix() == file for path in ROOT.glob(pattern))


def measure(copy: Copy, path: Path, tests: Sequence[str] = ()) -> str:
    """Run all tests, or the files in `tests`, in an unchanged copy of the tree and write their coverage to `path`,
    where results of other files stay. Return pytest's report of failing tests. Raises `RuntimeError` if pytest
    fails."""
    folder = copy.folder
    own, of_children, report = folder / ".coveragerc", folder / ".coveragerc-children", folder / "junit.xml"
    own.write_text(_IN_PROCESS, encoding="utf-8")
    sources = ", ".join(str(folder / name) for name in _SOURCES)
    of_children.write_text(_IN_CHILDREN.format(folder=folder, sources=sources), encoding="utf-8")
    (folder / "children").mkdir()
    words = ["--cov", f"--cov-config={own}", "--cov-context=test", "--cov-report=", f"--junit-xml={report}"]
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "-p",
        "no:cacheprovider",
    ]
    asked.append(f"--rootdir={folder}")  # so that tests are named from there, not from test/pytest.ini
    ran = subprocess.run(
        [*asked, "-p", "benchmarks.mutants.code.children", *words, *(tests or (*QUICK, *_WHOLE_RUNS))],
        cwd=folder,
        env={**copy.environment(), SETTINGS: str(of_children)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"the tests of the unchanged tree can't be run:\n{ran.stdout[-3000:]}")
    found = _gathered(folder)
    if tests:
        found = beside(json.loads(path.read_text(encoding="utf-8")), found, tests)
    path.write_text(json.dumps(found), encoding="utf-8")
    return "\n".join(line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))


def beside(before: dict[str, Any], found: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Return the earlier measurement with new results `found` for some test files."""
    stays = {name for name in before["names"] if name.partition("::")[0] not in files}
    names = [*sorted(stays), *found["names"]]
    numbers = {name: number for number, name in enumerate(names)}
    tests: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    children: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in (before, found):
        for file, lines in one["tests"].items():
            for line, ran in lines.items():
                of = [one["names"][number] for number in ran]
                tests[file][line] += [numbers[name] for name in of if one is found or name in stays]
        for file, lines in one["in_children"].items():
            for line, ran in lines.items():
                children[file][line] += [name for name in ran if one is found or name not in files]
    seconds = {**before["seconds"], **found["seconds"]}
    return {"tests": tests, "names": names, "seconds": seconds, "in_children": children}


def _gathered(folder: Path) -> dict[str, Any]:
    import coverage

    numbers: dict[str, int] = {}
    tests: dict[str, dict[str, list[int]]] = {}
    data = coverage.CoverageData(str(folder / ".coverage"))
    data.read()
    for file in data.measured_files():
        lines = defaultdict(list)
        for line, contexts in data.contexts_by_lineno(file).items():
            # `NODEID|setup`, `|run` or `|teardown`; the empty one is what ran when modules were imported.
            names = filter(None, (context.rpartition("|")[0] for context in contexts))
            lines[str(line)] = sorted({numbers.setdefault(name, len(numbers)) for name in names})
        tests[os.path.relpath(file, folder)] = dict(lines)
    return {
        "tests": tests,
        "names": list(numbers),
        "seconds": _seconds(folder / "junit.xml"),
        "in_children": _of_children(folder, (folder / "children").glob(".coverage*")),
    }


def _of_children(folder: Path, kept: Iterable[Path]) -> dict[str, dict[str, list[str]]]:
    import coverage

    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in kept:
        data = coverage.CoverageData(str(path))
        try:
            data.read()
        except coverage.exceptions.DataError:  # incomplete, because its process was killed
            continue
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                # `FILE::TEST (call)`, as PYTEST_CURRENT_TEST has it; a pytest that a test started has other names
                files = {name for context in contexts if (name := context.partition("::")[0]).startswith("test/")}
                found[os.path.relpath(file, folder)][str(line)] |= files
    return {file: {line: sorted(names) for line, names in lines.items()} for file, lines in found.items()}


def _seconds(report: Path) -> dict[str, float]:
    import xml.etree.ElementTree as ElementTree

    found: dict[str, float] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.attrib["classname"].replace(".", "/")
        found[f"{file}.py::{case.attrib['name']}"] = float(case.attrib.get("time", 0))
    return found
