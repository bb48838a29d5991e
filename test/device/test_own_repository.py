"""The story of examples/own-repository, played by its ci.sh on a copy: a failure comes, is accepted, and goes."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import REPOSITORY, CommandLine, Ran

from hardware.evidence.record import Outcome
from hardware.evidence.store import read_folder
from hardware.evidence.versions import FAULT_VARIABLE

pytestmark = pytest.mark.slow

CELL = "vit/image-classification/simulated/float32"
SUBSET = ("--model", "vit", "--device", "cpu", "--device", "simulated")
ONE_CELL = ("--model", "vit", "--device", "simulated")
BROKEN = {FAULT_VARIABLE: "wrong:aten.convolution"}


def says(ran: Ran, label: str, cell: str = CELL) -> str:
    """What the last table says of a cell under a label, on one line; empty if it says nothing."""
    project = ran.out.rpartition("\nProject ")[2]
    for block in re.split(r"\n(?=\S)", project):
        if block.lower().startswith(label) and cell in block:
            return " ".join(block.split())
    return ""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A copy of the example, and how its ci.sh is started."""

    folder: Path
    command_line: CommandLine

    @property
    def project(self) -> Path:
        return self.folder / "hwcompat.toml"

    def ci(self, *arguments: str, env: dict[str, str] | None = None) -> Ran:
        return self._run("sh", "ci.sh", *arguments, env=env)

    def door(self, *arguments: str, env: dict[str, str] | None = None) -> Ran:
        """The product's own command line on this project."""
        door = str(REPOSITORY / "run_test_generation.py")
        words = ("--config", "hwcompat.toml", "--output-dir", "tests/hwcompat", *arguments)
        return self._run(sys.executable, door, *words, env=env)

    def _run(self, *words: str, env: dict[str, str] | None = None) -> Ran:
        said = self.folder.with_name("said")
        given = {"HWCOMPAT_HOME": str(REPOSITORY), "PYTHON": sys.executable, **(env or {})}
        return self.command_line.wait(self.command_line.start_program(said, *words, env=given, cwd=self.folder), said)

    def accept(self, until: date) -> str:
        """Add the entry of an accepted failure; returns its text."""
        entry = (
            f'[[accepted_failure]]\ncell = "{CELL}"\nerror_type = "numerical_mismatch"\n'
            'reason = "the new driver scales convolutions"\nlink = "https://example.org/issues/17"\n'
            f"until = {until}\n"
        )
        with self.project.open("a", encoding="utf-8") as file:
            file.write(f"\n{entry}")
        return entry

    def newest_junit(self) -> ElementTree.Element:
        newest = max((self.folder / "build/hwcompat/reports").glob("*.xml"), key=lambda path: path.name)
        return ElementTree.parse(newest).getroot()


@pytest.fixture
def repository(command_line: CommandLine, tmp_path: Path) -> Repository:
    copied = shutil.copytree(
        REPOSITORY / "examples" / "own-repository",
        tmp_path / "own",
        ignore=shutil.ignore_patterns("build", "hwcompat", "__pycache__"),
    )
    return Repository(folder=copied, command_line=command_line)


@pytest.mark.extended
def test_a_failure_comes_is_accepted_goes_and_its_entry_has_to_go_too(repository: Repository) -> None:
    assert repository.door(*SUBSET).code == 0
    assert len(list((repository.folder / "tests/hwcompat").glob("test_*.py"))) == 2

    green = repository.ci(*SUBSET)
    assert green.code == 0, green.out + green.err
    assert "2 met" in green.out
    assert "2 passed" in green.out  # the repository's own tests

    broken = repository.ci(*SUBSET, env=BROKEN)
    assert broken.code == 1
    said = says(broken, "worse")
    assert "expected high, measured unsupported" in said
    assert "matches_reference failed" in said
    assert "1 met, 1 worse" in broken.out

    original = repository.project.read_text()
    entry = repository.accept(date.today() + timedelta(days=30))
    accepted = repository.ci(*SUBSET, env=BROKEN)
    assert accepted.code == 0, accepted.out + accepted.err
    assert "https://example.org/issues/17" in says(accepted, "accepted")
    assert "doesn't apply" in says(accepted, "met")
    assert re.search(rf"\n{re.escape(CELL)} +\w+ +unsupported ", accepted.out)  # its row is shown
    junit = repository.newest_junit()
    cases = [case for case in junit.iter("testcase") if CELL in (case.get("classname") or "")]
    skipped = [case for case in cases if case.find("skipped") is not None]
    assert len(skipped) >= 3
    assert all("accepted" in next(case.iter("skipped")).get("message", "") for case in skipped)
    assert not list(junit.iter("failure"))

    fixed = repository.ci(*SUBSET)
    assert fixed.code == 1
    said = says(fixed, "passes now")
    first, last = map(int, re.search(r"lines (\d+)-(\d+) of hwcompat\.toml", said).groups())  # type: ignore[union-attr]
    lines = repository.project.read_text().splitlines(keepends=True)
    assert "".join(lines[first - 1 : last]) == entry
    for line in entry.splitlines():
        assert f"    {line}\n" in fixed.out

    repository.project.write_text("".join([*lines[: first - 1], *lines[last:]]))
    assert repository.project.read_text().rstrip() == original.rstrip()
    assert repository.ci(*SUBSET).code == 0


def test_a_suite_that_is_not_what_would_be_generated_stops_ci_before_anything_runs(repository: Repository) -> None:
    assert repository.door(*ONE_CELL).code == 0
    (suite,) = (repository.folder / "tests/hwcompat").glob("test_*.py")
    suite.write_text(suite.read_text().replace("<= case.tolerance", "<= 1e9"))
    stopped = repository.ci(*ONE_CELL)
    assert stopped.code == 1
    assert f"edited   {suite.name}" in stopped.out
    assert not (repository.folder / "build").exists()

    suite.unlink()
    missing = repository.ci(*ONE_CELL)
    assert missing.code != 0
    assert not (repository.folder / "build").exists()


@pytest.mark.extended
def test_the_first_lock_is_what_was_measured_and_holds_from_then_on(repository: Repository) -> None:
    text = re.sub(r"\n\[expected\][^[]*", "\n", repository.project.read_text())
    repository.project.write_text(text)
    repository.door(*ONE_CELL)
    where = ("--evidence", "build/evidence", "--report-dir", "build/reports")
    first = repository.door(*ONE_CELL, "--run", "--update-expected", *where)
    assert first.code == 0, first.out + first.err
    added = repository.project.read_text().removeprefix(text.rstrip("\n"))
    assert added.split() == ["[expected]", f'"{CELL}"', "=", '"high"']
    outcomes = {line.outcome for line in read_folder(repository.folder / "build/evidence").checks}
    assert outcomes == {Outcome.PASSED}
