"""Report the lines and branches that tests reach, and why others aren't: `python -m benchmarks.covered page`.

`make coverage` runs the tests and stores their coverage; benchmarks/uncovered.toml holds the reasons. The page lists
files below `ENOUGH` that have no reason.
"""

from __future__ import annotations

import fnmatch
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from reports.text import markdown_table

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "evidence" / "coverage.json"
REASONS = ROOT / "benchmarks" / "uncovered.toml"
ENOUGH = 0.75
"""The share of statements and branches from which on a file needs no reason."""


@dataclass(frozen=True, kw_only=True)
class File:
    """Coverage of one file: counts of statements and branches, and the numbers of unreached lines."""

    path: str
    statements: int
    covered: int
    branches: int
    branches_covered: int
    missing: tuple[int, ...] = ()

    @property
    def missed(self) -> int:
        """The number of statements and branches that no test reached."""
        return self.statements - self.covered + self.branches - self.branches_covered

    @property
    def is_short(self) -> bool:
        """Whether the file needs a reason."""
        return self.missed > (1 - ENOUGH) * (self.statements + self.branches)


@dataclass(frozen=True, kw_only=True)
class Reason:
    """The reason why tests don't reach lines of files that match one of the patterns."""

    files: tuple[str, ...]
    why: str


def read_reasons(path: Path = REASONS) -> tuple[Reason, ...]:
    """Read the reasons in order: the first that matches a file counts."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["reason"]
    return tuple(Reason(files=tuple(one["files"]), why=one["why"]) for one in listed)


def files_of(report: Mapping[str, Any]) -> list[File]:
    """Return the files of coverage.py's JSON report."""
    return [
        File(
            path=path,
            statements=found["summary"]["num_statements"],
            covered=found["summary"]["covered_lines"],
            branches=found["summary"]["num_branches"],
            branches_covered=found["summary"]["covered_branches"],
            missing=tuple(found["missing_lines"]),
        )
        for path, found in sorted(report["files"].items())
    ]


def by_reason(files: Iterable[File], reasons: Sequence[Reason]) -> tuple[dict[str, list[File]], list[File]]:
    """Return the files with too little coverage: a dict by reason, and a list of files without a reason."""
    explained: dict[str, list[File]] = {one.why: [] for one in reasons}
    bare = []
    for one in files:
        if one.is_short:
            why = next((r.why for r in reasons if any(fnmatch.fnmatch(one.path, p) for p in r.files)), None)
            (bare if why is None else explained[why]).append(one)
    return explained, sorted(bare, key=lambda one: -one.missed)


def unused(reasons: Sequence[Reason], files: Iterable[File]) -> list[str]:
    """Return the patterns that no longer match a file with too little coverage."""
    missed = [one.path for one in files if one.is_short]
    return [p for one in reasons for p in one.files if not any(fnmatch.fnmatch(path, p) for path in missed)]


def page(kept: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    """Return the page as Markdown."""
    files = [File(**{**one, "missing": tuple(one["missing"])}) for one in kept["files"]]
    explained, bare = by_reason(files, reasons)
    folders = Counter(_folder(one.path) for one in files)
    rows = [_row(name, [one for one in files if _folder(one.path) == name]) for name in sorted(folders)]
    lines = [
        "# Test coverage",
        _result(files),
        f"Measured {kept['date']} with coverage.py {kept['coverage']} by `make coverage`: {kept['tests']}. "
        "Child processes of the tests are included; code in other environments and on other machines isn't. "
        "[Mutants](mutants.md) shows whether tests fail when code is broken.",
        markdown_table(("folder", "files", "lines", "reached", "branches", "reached"), [_row("all", files), *rows]),
        "## Unreached code, with reasons",
        markdown_table(
            ("unreached lines and branches", "where", "why"),
            [[str(sum(f.missed for f in found)), _where(found), why] for why, found in explained.items() if found],
        ),
    ]
    listed = sum(f.missed for found in (*explained.values(), bare) for f in found)
    rest = sum(one.missed for one in files) - listed
    lines.append(
        f"{rest:,} more are in files of which at least {ENOUGH:.0%} is reached; docs/evidence/coverage.json has "
        "the lines of each."
    )
    if gone := unused(reasons, files):
        lines.append(f"Reasons that are gone: {', '.join(gone)}.")
    if bare:
        lines += [
            "## Unreached code without a reason",
            markdown_table(
                ("file", "unreached lines and branches", "lines"),
                [[f"`{one.path}`", str(one.missed), ranges(one.missing)] for one in bare],
            ),
        ]
    return "\n\n".join(lines) + "\n"


def ranges(lines: Sequence[int]) -> str:
    """Return line numbers as ranges, such as "1-3, 7"."""
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _folder(path: str) -> str:
    return "/".join(Path(path).parent.parts[:2])


def _where(found: Sequence[File]) -> str:
    most = sorted(found, key=lambda one: -one.missed)[:6]
    rest = len(found) - len(most)
    return ", ".join(f"`{one.path}` ({one.missed})" for one in most) + (f" and {rest} more" if rest else "")


def _result(files: Sequence[File]) -> str:
    _, _, lines, reached, branches, taken = _row("all", files)
    return f"The tests reach {reached} of {lines} lines and {taken} of {branches} branches."


def _row(name: str, files: Sequence[File]) -> list[str]:
    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.1f} %" if whole else "-"

    statements, branches = sum(one.statements for one in files), sum(one.branches for one in files)
    covered, taken = sum(one.covered for one in files), sum(one.branches_covered for one in files)
    counted = (str(len(files)), str(statements), share(covered, statements), str(branches), share(taken, branches))
    return [f"`{name}`" if name != "all" else name, *counted]


@click.group(help=__doc__)
def main() -> None:
    """Report the coverage of the tests."""


@main.command()
@click.argument("report", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--tests", required=True, help="Which tests ran, and how they ended.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=KEPT)
def keep(report: Path, tests: str, out: Path) -> None:
    """Store the coverage of each file from coverage.py's JSON report."""
    found = json.loads(report.read_text(encoding="utf-8"))
    meta = found["meta"]
    kept = {
        "date": meta["timestamp"][:10],
        "coverage": meta["version"],
        "tests": tests,
        "files": [vars(one) for one in files_of(found)],
    }
    out.write_text(json.dumps(kept) + "\n", encoding="utf-8")


@main.command("page")
def write_page() -> None:
    """Write docs/measured/coverage.md."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    (ROOT / "docs" / "measured" / "coverage.md").write_text(page(kept, read_reasons()), encoding="utf-8")


if __name__ == "__main__":
    main()
