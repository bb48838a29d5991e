"""Compare the product's reader and reporter with the raw files of a folder of evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hardware.detection import detect
from hardware.evidence.latest import Latest, read_latest
from hardware.evidence.store import Evidence, read_folder
from reports.reporter import HardwareCompatibilityReporter

from .checking import Raw, unfinished

_GREEN = ("high", "medium")


def levels_in(folder: Path) -> Mapping[str, str]:
    """Return the levels that the product's reporter gives the cells of a folder."""
    reporter, _ = _reported(read_latest(folder, details=True), folder)
    return {one.verdict.cell: str(one.verdict.level) for one in reporter.cells}


def misread(folder: Path, raw: Raw) -> list[str]:
    """Return differences between the product and the raw files: in lines, broken lines and interrupted runs, and
    levels above the results of any run."""
    if not folder.is_dir():
        return []
    evidence = read_folder(folder)
    found = _misread(evidence, raw)
    whole = _passed_whole(raw)
    planned = {
        (cell["cell_id"], check) for run in raw.of_kind("run") for cell in run["plan"] for check in cell["checks"]
    }
    for name, latest in (("objects", evidence), ("DuckDB", read_latest(folder, details=True))):
        reporter, said = _reported(latest, folder)
        found += [f"{name}: no finding names the run {run} as cut off" for run in unfinished(raw) if run not in said]
        found += [f"{name}: no finding names half a line in {file}" for file in raw.torn if file not in said]
        reported = {(line.cell_id, line.check_name) for line in reporter.checks}
        found += [f"{name}: the report does not tell of {key}" for key in sorted(planned - reported)]
        for one in reporter.cells:
            if str(one.verdict.level) in _GREEN and one.verdict.cell not in whole:
                found.append(f"{name}: {one.verdict.cell} is {one.verdict.level}, and no run passed it whole")
    return found


def _misread(evidence: Evidence, raw: Raw) -> list[str]:
    found = []
    read = Counter((one.run_id, one.cell_id, one.check_name, str(one.outcome)) for one in evidence.checks)
    there = Counter(
        (line["run_id"], line["cell_id"], line["check_name"], line["outcome"]) for line in raw.of_kind("check")
    )
    if read != there:
        found.append(f"the reader misses {list((there - read).elements())}, adds {list((read - there).elements())}")
    broken = sorted({one.file for one in evidence.broken})
    if broken != sorted({*raw.torn, *(text.partition(",")[0] for text in raw.broken)}):
        found.append(f"the reader calls {broken} broken, and {raw.torn} are")
    cut_off = read_latest(evidence, details=True).unfinished
    if set(cut_off) != unfinished(raw):
        found.append(f"the reader calls {cut_off} cut off, and {sorted(unfinished(raw))} are")
    return found


def _reported(latest: Evidence | Latest, folder: Path) -> tuple[HardwareCompatibilityReporter, str]:
    reporter = HardwareCompatibilityReporter(latest, output_folder=folder)
    reporter._inventory = _machine()
    findings = reporter.collect_compatibility_test_errors()
    return reporter, "\n".join(one.message for one in findings)


_INVENTORY: list[object] = []


def _machine() -> object:
    """Detect this machine once for all folders."""
    if not _INVENTORY:
        _INVENTORY.append(detect())
    return _INVENTORY[0]


def _passed_whole(raw: Raw) -> set[str]:
    """Return cells of which some run passed all planned checks."""
    found = set()
    for run in raw.of_kind("run"):
        own = [line for line in raw.of_kind("check") if line["run_id"] == run["run_id"]]
        for cell in run["plan"]:
            lines = [line for line in own if line["cell_id"] == cell["cell_id"]]
            passed = {line["check_name"] for line in lines if line["outcome"] == "passed"}
            if set(cell["checks"]) <= passed and all(line["outcome"] == "passed" for line in lines):
                found.add(cell["cell_id"])
    return found
