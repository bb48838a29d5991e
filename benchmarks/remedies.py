"""Measure whether remedies fix what can be fixed, on failing cells of real sweeps that were labeled before.

    python -m benchmarks.remedies choose EVIDENCE...          seeded cells to label
    python -m benchmarks.remedies run EVIDENCE... --out DIR   try the remedies of cells labeled fixable
    python -m benchmarks.remedies page [--out DIR]            docs/measured/remedies.md, from stored results or a run

`remedies_labels.toml` has the labels. They were committed before a remedy ran, and aren't edited afterwards.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import click

from hardware.cell import Cell
from hardware.detection import detect, targets
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine
from hardware.evidence.store import lines_by_cell, read_folder
from hardware.evidence.versions import versions_of
from hwcompat.plugins.triage.remedies.try_remedies import STATE_TEXT, RemedyRun, Workplace, try_cell
from hwcompat.plugins.triage.remedies_command import cell_to_dict
from reports.text import code, markdown, markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "remedies.md"
KEPT = Path(__file__).parents[1] / "docs" / "evidence" / "remedies.jsonl"
LABELS = Path(__file__).with_name("remedies_labels.toml")
COMMAND = "python -m benchmarks.remedies run"
SEED = 20261123
CHOSEN = 40
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

_NUMBERS = re.compile(r"\d[\d.e+-]*")
_LONGEST_CAUSE = 240


def failing_cells(folders: Sequence[Path]) -> dict[str, list[CheckLine]]:
    """Return the failed checks among the latest results by cell, in their order, for each cell that failed."""
    found = {}
    for folder in folders:
        for cell, lines in lines_by_cell(read_latest(folder).checks).items():
            failed = [line for line in lines if line.outcome.is_failure]
            if failed:
                found[cell] = failed
    return found


def cause_of(lines: Sequence[CheckLine]) -> tuple[str, ...]:
    """Return what cells with one cause share: target, type, stage, checks, and the message without numbers."""
    first = lines[0]
    message = _NUMBERS.sub("#", first.error_message.replace(first.model, "MODEL"))[:_LONGEST_CAUSE]
    checks = ",".join(line.check_name for line in lines)
    return first.requested_target, first.error_type, str(first.stage), checks, message


def chosen_cells(cells: dict[str, list[CheckLine]]) -> list[str]:
    """Draw one cell for each cause, in turns from every (target, error type), so that no kind dominates."""
    drawn = random.Random(SEED)
    causes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for cell, lines in sorted(cells.items()):
        causes[cause_of(lines)].append(cell)
    strata: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for cause, members in sorted(causes.items()):
        strata[cause[:2]].append(drawn.choice(members))
    for members in strata.values():
        drawn.shuffle(members)
    kept: list[str] = []
    while len(kept) < CHOSEN and any(strata.values()):
        for name in sorted(strata):
            if strata[name] and len(kept) < CHOSEN:
                kept.append(strata[name].pop())
    return kept


@click.group()
def main() -> None:
    """Measure remedies."""


@main.command()
@click.argument("evidence", nargs=-1, required=True, type=click.Path(path_type=Path))
def choose(evidence: tuple[Path, ...]) -> None:
    """Print the cells to label, each with what failed."""
    cells = failing_cells(evidence)
    for cell in chosen_cells(cells):
        first = cells[cell][0]
        checks = ", ".join(line.check_name for line in cells[cell])
        click.echo(f"{cell}\t{first.error_type}\t{first.stage}\t{checks}\t{first.error_message[:700]!r}")


@main.command()
@click.argument("evidence", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--fixable", type=click.Choice(["here", "elsewhere"]), required=True)
@click.option("--timeout", "timeout_s", type=float, default=150.0)
def run(evidence: tuple[Path, ...], out: Path, fixable: str, timeout_s: float) -> None:
    """Try the remedies of the cells with one label and store each result; resumes an interrupted run.

    Cells labeled `here` are first measured without remedies; the failure of the others is taken from the sweep.
    """
    known = failing_runs(evidence)
    here = [one.target for one in targets(detect()) if one.expected]
    noted = out / "results.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["cell"] for line in noted.read_text().splitlines()} if noted.exists() else set()
    place = Workplace(folder=out / "tries", evidence=None, command=COMMAND, timeout_s=timeout_s, child_s=900)
    for entry in labels():
        if entry["fixable"] != fixable or entry["id"] in done:
            continue
        found = try_cell(
            Cell.parse(entry["id"]),
            place,
            here=here,
            on_note=click.echo,
            known=known.get(entry["id"]) if fixable == "elsewhere" else None,
            first_is_enough=True,
        )
        with noted.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell_to_dict(found)) + "\n")


@main.command()
@click.option("--out", type=click.Path(path_type=Path), help="A run's folder, to be kept instead of what is.")
def page(out: Path | None) -> None:
    """Write docs/measured/remedies.md from the stored results, without paths of this machine."""
    if out is not None:
        noted = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
        KEPT.write_text(
            "".join(json.dumps(_without_paths(one), sort_keys=True) + "\n" for one in noted), encoding="utf-8"
        )
    results = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    versions = versions_of(detect())
    PAGE.write_text(page_text(labels(), results, versions, date.today().isoformat()), encoding="utf-8")


def _without_paths(noted: Any) -> Any:
    """Return the stored result of a cell without the path of its evidence."""
    if isinstance(noted, dict):
        return {name: _without_paths(value) for name, value in noted.items() if name not in ("evidence", "run")}
    return [_without_paths(one) for one in noted] if isinstance(noted, list) else noted


def page_text(
    entries: Sequence[dict[str, str]], results: Sequence[dict[str, Any]], versions: dict[str, str], today: str
) -> str:
    """Return the page: shares of the cells labeled fixable, and a row for each."""
    by_cell = {one["cell"]: one for one in results}
    rows = [Row(entry=one, result=by_cell.get(one["id"])) for one in entries if one["fixable"] != "no"]
    counted = [row for row in rows if row.counts]
    here, elsewhere = ([row for row in counted if row.entry["fixable"] == name] for name in ("here", "elsewhere"))
    fixes = Counter(row.fixed_by for row in counted if row.fixed_by)
    used = ("torch", "transformers", "openvino", "optimum-intel", "onnx", "onnxruntime", "onnxruntime-qnn")
    shares = [
        ["labeled fixable on their target", *_shares(here)],
        ["labeled fixable on another target only", *_shares(elsewhere)],
        ["**all labeled fixable**", *_shares(counted)],
    ]
    left = [row.entry["id"] for row in rows if not row.counts]
    fixed = sum(bool(row.fixed_by) for row in counted)
    return _PAGE.format(
        result=f"`hwcompat fix` fixed {fixed} of {len(counted)} failing cells that were labeled fixable.",
        today=today,
        versions=", ".join(f"{name} {versions[name]}" for name in used if name in versions),
        labeled=len(entries),
        no=len(entries) - len(rows),
        seed=SEED,
        fixable=len(rows),
        counted=len(counted),
        least=sum(row.top_fixed for row in counted),
        shares=markdown_table(
            ["cells", "count", "fixed by the top remedy", "fixed by any remedy", "of those, on their own target"],
            shares,
        ),
        turners=", ".join(f"{code(name)} {count}" for name, count in fixes.most_common()),
        left=f"Not counted, because nothing was tried or the cell works now: {', '.join(map(code, left))}.\n\n"
        if left
        else "",
        cells=markdown_table(["cell", "failure", "label", "tried, in order"], [row.cells for row in rows]),
        rest=markdown_table(
            ["cell", "why"],
            [[code(one["id"]), markdown(one["reason"])] for one in entries if one["fixable"] == "no"],
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A labeled cell and its stored result, or None if nothing was tried."""

    entry: dict[str, str]
    result: dict[str, Any] | None

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The tries in order."""
        return list(self.result["tried"]) if self.result else []

    @property
    def counts(self) -> bool:
        """Whether the cell counts in the shares: a remedy was tried, or none applied to the failure."""
        return self.result is not None and not self.result["works"] and not self.result["problem"]

    @property
    def top_fixed(self) -> bool:
        """Whether the first remedy fixed the cell."""
        return bool(self.tried) and self.tried[0]["state"] == "turned"

    @property
    def fixed_by(self) -> str:
        """The first remedy that fixed the cell, or an empty string."""
        return next((one["remedy"] for one in self.tried if one["state"] == "turned"), "")

    @property
    def cells(self) -> list[str]:
        """Return the row of the table."""
        tried = "; ".join(f"{code(one['remedy'])}: {STATE_TEXT[one['state']]}" for one in self.tried)
        if self.result and self.result["works"]:
            tried = "works now"
        failure = f"{self.result['error_type']}, {self.result['check']}" if self.result else ""
        return [code(self.entry["id"]), markdown(failure), self.entry["fixable"], tried or "not tried"]


def _shares(rows: Sequence[Row]) -> list[str]:
    top, anyway = sum(row.top_fixed for row in rows), sum(bool(row.fixed_by) for row in rows)
    own = sum(bool(row.fixed_by) and not row.fixed_by.startswith("other_target") for row in rows)
    return [str(len(rows)), *(f"{count} ({count / len(rows):.0%})" if rows else "" for count in (top, anyway, own))]


def labels() -> list[dict[str, str]]:
    """Read the labeled cells."""
    found: list[dict[str, str]] = tomllib.loads(LABELS.read_text(encoding="utf-8"))["cell"]
    return found


def failing_runs(folders: Sequence[Path]) -> dict[str, RemedyRun]:
    """Return by cell the newest run of a sweep in which it failed."""
    found: dict[str, RemedyRun] = {}
    for folder in folders:
        evidence = read_folder(folder)
        by_cell = lines_by_cell(evidence.checks)
        for line in evidence.runs:
            for plan in line.plan:
                lines = tuple(one for one in by_cell.get(plan.cell_id, ()) if one.run_id == line.run_id)
                if any(one.outcome.is_failure for one in lines):
                    found[plan.cell_id] = RemedyRun(run=line, plan=plan, lines=lines)
    return found


if __name__ == "__main__":
    main()
