"""The score of stored predictions as tables: text, Markdown and JSON have the same content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import click

from hwcompat.generators.compatibility.prediction_scores import (
    MOST_WRONG,
    PredictionTally,
    RuleScore,
    Scored,
    Scores,
    always_yes,
    by_family,
    by_rule,
    score,
    tally,
)
from hwcompat.generators.compatibility.rules import own_files
from hwcompat.generators.options import Options
from hwcompat.generators.project.project_finding import ProjectFinding, ProjectFindingKind, judge_accepted
from hwcompat.generators.project.project_reader import read_project
from hwcompat.hardware.errors import NothingMatched
from hwcompat.hardware.evidence.latest import read_latest
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.store import Evidence
from hwcompat.hardware.plain_text import json_text, one_line
from hwcompat.hardware.plain_text import markdown as text_of_markdown
from hwcompat.reports.reason_text import reason_text, texts
from hwcompat.reports.text import text_table

COLUMNS = (
    *("", "cells", "works as predicted", "works, predicted to fail", "fails as predicted"),
    *("fails, predicted to work", "no prediction"),
    *("agreement", "balanced", "failures predicted", "wrong of positive", "abstained"),
)

_FIGURES = (
    *("true_supported", "false_unsupported", "true_unsupported", "false_supported", "abstained_works"),
    *("abstained_fails", "agreement", "balanced_accuracy", "caught", "wrongly_supported", "abstentions"),
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The content of a report: the scores, for types that rules were tuned on and held-out ones, and accepted
    failures of a project that pass now."""

    scores: Scores
    passing: tuple[ProjectFinding, ...] = ()

    def half(self, *, held_out: bool) -> list[tuple[str, PredictionTally]]:
        """Return a row for each target, one for all, and the baselines of all."""
        cells = [one for one in self.scores.cells if one.held_out is held_out]
        names = sorted({str(one.cell.target) for one in cells})
        rows = [(name, _tally(one for one in cells if str(one.cell.target) == name)) for name in names]
        rows.append(("all targets", _tally(cells)))
        tuned = [one for one in self.scores.cells if not one.held_out]
        if self.scores.first:
            rows.append(("… by the first prediction", self.as_first_predicted(held_out=held_out)))
        for name, guess in (("always yes", always_yes), ("by family", by_family(tuned))):
            rows.append((f"baseline: {name}", tally((guess(one), one.works) for one in cells)))
        return rows

    def as_first_predicted(self, *, held_out: bool) -> PredictionTally:
        """Return all cells of a half, with the first prediction of each."""
        first = {one.cell.id: one for one in self.scores.first}
        cells = [first.get(one.cell.id, one) for one in self.scores.cells]
        return _tally(one for one in cells if one.held_out is held_out)

    @property
    def rules(self) -> tuple[RuleScore, ...]:
        """Return all rules that decided a prediction, the worst first."""
        return by_rule(self.scores.cells)

    @property
    def poor(self) -> tuple[RuleScore, ...]:
        """Return the rules that are wrong too often."""
        return tuple(one for one in self.rules if one.is_poor)

    def wrong(self, *, said: bool | None) -> list[Scored]:
        """Return the cells that fail and were predicted to work (`said` True), that work and were predicted to fail
        (False), or without a prediction (None)."""
        return [one for one in self.scores.cells if one.said is said and (said is None or one.works is not said)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema_version": 1,
            "cells": len(self.scores.cells),
            "unsettled": self.scores.unsettled,
            "without_prediction": self.scores.without_prediction,
            "predicted_more_than_once": len(self.scores.first),
            "held_out": {name: _figures(one) for name, one in self.half(held_out=True)},
            "tuned": {name: _figures(one) for name, one in self.half(held_out=False)},
            "rules": [
                {"rule": one.rule_id, "right": one.right, "wrong": list(one.wrong), "poor": one.is_poor}
                for one in self.rules
            ],
            "wrong": [
                {
                    "cell": one.cell.id,
                    "predicted": str(one.predicted.level),
                    "measured": str(one.measured.level),
                    "rules": list(one.predicted.rule_ids),
                    "reasons": list(texts(one.measured.reasons[:3])),
                    "run": one.run_id,
                    "held_out": one.held_out,
                }
                for said in (True, False)
                for one in self.wrong(said=said)
            ],
            "accepted_failures_that_pass": [{"cell": one.cell, "message": one.message} for one in self.passing],
        }


def _tally(cells: Iterable[Scored]) -> PredictionTally:
    return tally((one.said, one.works) for one in cells)


def _figures(one: PredictionTally) -> dict[str, Any]:
    return {"cells": one.total, **{name: getattr(one, name) for name in _FIGURES}}


def calibration_text(found: Calibration, format: str) -> str:
    """Return the report in `table` or `markdown`, ending in a newline."""
    return "\n".join(_lines(found, markdown=format == "markdown")).rstrip() + "\n"


def _lines(found: Calibration, *, markdown: bool) -> Iterator[str]:
    head = "## " if markdown else ""
    scores = found.scores
    yield (
        f"{len(scores.cells)} stored predictions have a result; {scores.unsettled} more cells have no level after "
        f"their run, and {scores.without_prediction} had no stored prediction."
    )
    if scores.first:
        yield (
            f"{len(scores.first)} cells were predicted and measured more than once, and rules may have changed in "
            "between: the newest prediction counts, and a separate row has the first."
        )
    if own := own_files(id_ for one in scores.cells for id_ in one.predicted.rule_ids):
        yield f"Some of these predictions used rules of your own: {', '.join(own)}."
    for held_out, title in (
        (True, "Held-out types: no rule was tuned on them"),
        (False, "Types used for tuning rules"),
    ):
        yield f"\n{head}{title}\n"
        yield _table([COLUMNS, *(_row(name, one) for name, one in found.half(held_out=held_out))], markdown)
    yield f"\n{head}Rules\n"
    yield _table([("rule", "right", "wrong", ""), *(_rule(one) for one in found.rules)], markdown)
    titles = {True: "Predicted to work, but fails", False: "Predicted to fail, but works", None: "No prediction"}
    for said, title in titles.items():
        cells = found.wrong(said=said)
        yield f"\n{head}{title} ({len(cells)})\n"
        if cells:
            yield _table([("cell", "half", "predicted", "measured", "rules", "reason"), *map(_cell, cells)], markdown)
    if found.passing:
        yield f"\n{head}Accepted failures that pass now ({len(found.passing)})\n"
        yield _table([("cell", "what", "do"), *((one.cell, one.message, one.fix) for one in found.passing)], markdown)


def _row(name: str, one: PredictionTally) -> tuple[str, ...]:
    counts = (one.true_supported, one.false_unsupported, one.true_unsupported, one.false_supported)
    shares = (one.agreement, one.balanced_accuracy, one.caught, one.wrongly_supported, one.abstentions)
    abstained = one.abstained_works + one.abstained_fails
    percents = ("-" if share is None else f"{100 * share:.1f} %" for share in shares)
    return (name, *map(str, (one.total, *counts, abstained)), *percents)


def _rule(one: RuleScore) -> tuple[str, ...]:
    return (one.rule_id, str(one.right), str(len(one.wrong)), f"over {MOST_WRONG:.0%}" if one.is_poor else "")


def _cell(one: Scored) -> tuple[str, ...]:
    why = next(iter(texts(one.measured.reasons)), "")
    half = "held out" if one.held_out else "seen"
    said, is_ = str(one.predicted.level), str(one.measured.level)
    short = one_line(why.replace("|", "/"), longest=110)
    return (one.cell.id, half, said, is_, ", ".join(one.predicted.rule_ids), short)


def _table(rows: Sequence[Sequence[str]], markdown: bool) -> str:
    shown = text_of_markdown if markdown else one_line  # ids and reasons come from evidence
    cells = [[shown(cell) for cell in row] for row in rows]
    return text_table(cells[0], cells[1:], "github" if markdown else "simple")


def report_calibration(options: Options) -> int:
    """Print the report; return the exit code. Raises `NothingMatched` if no prediction has a result."""
    evidence = options.read_evidence() or Evidence()
    found = Calibration(scores=score(evidence), passing=_passing(options, evidence))
    if not found.scores.cells:
        raise NothingMatched(
            "no prediction can be scored",
            why=f"no cell in {options.evidence} has both a prediction and a result",
            fix="For example: hwcompat run --priority high --device cpu",
        )
    if options.format_ == "json":
        click.echo(json_text(found.to_dict()))
    else:
        click.echo(calibration_text(found, options.format_), nl=False)
    return 0


def _passing(options: Options, evidence: Evidence) -> tuple[ProjectFinding, ...]:
    """Return the accepted failures of the project file that pass in the newest evidence."""
    if options.config is None:
        return ()
    lines: dict[str, list[CheckLine]] = {}
    for line in read_latest(evidence).checks:
        lines.setdefault(line.cell_id, []).append(line)
    findings, _ = judge_accepted(read_project(options.config), lines, date.today(), {}, reason_text)
    return tuple(one for one in findings if one.kind is ProjectFindingKind.PASSES_NOW)
