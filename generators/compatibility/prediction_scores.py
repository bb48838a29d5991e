"""Scores sealed predictions: each was written before its run started, and is held against what that run measured.

A cell that its own run didn't settle says nothing. "Supported" is high or medium; a prediction that is unknown is an
abstention. Nothing measured feeds a prediction: what is sealed with evidence behind it is no prediction, and is
counted apart.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell, required_checks
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.models.classifier import classify_or_guess
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.errors import HwCompatError
from hardware.evidence.record import CheckLine, PlannedCell, RunLine
from hardware.evidence.store import Evidence

LIST = Path(__file__).with_name("held_out.txt")
"""The types of transformers 5.5.4 and the families of diffusers 0.37.1 that are held out, written down before the
first rule was tuned."""


def is_held_out(model_type: str) -> bool:
    """Whether SHA-256 of the name, taken as a number, can be divided by three."""
    return int(hashlib.sha256(model_type.encode()).hexdigest(), 16) % 3 == 0


@functools.cache
def held_out() -> frozenset[str]:
    """The types of the list."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


pass

SUPPORTED = frozenset({Level.HIGH, Level.MEDIUM})
_SCORED = "tiny"
"""The subject that is scored: a type, which is held out or isn't. What users bring has a name alone."""
_PREDICTIONS = frozenset({Basis.ASSUMED, Basis.PREDICTED})


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One cell whose prediction was sealed and whose run settled it."""

    cell: Cell
    family: str
    held_out: bool
    predicted: Verdict
    measured: Verdict
    run_id: str

    @property
    def works(self) -> bool:
        """Whether it was measured to be high or medium."""
        return self.measured.level in SUPPORTED

    @property
    def said(self) -> bool | None:
        """Whether it was predicted to work; None where the prediction abstained."""
        return None if self.predicted.level is Level.UNKNOWN else self.predicted.level in SUPPORTED


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The cells that could be scored, and how many couldn't: unsettled by their run, or sealed with no prediction.

    `first` are the cells that were predicted and settled more than once, each as it was the first time: rules may
    have learnt in between.
    """

    cells: tuple[Scored, ...]
    first: tuple[Scored, ...] = ()
    unsettled: int = 0
    without_prediction: int = 0


@dataclass(frozen=True, kw_only=True)
class PredictionTally:
    """Counts of predictions by what became of them; shares are of 1, `None` where there is nothing to divide by."""

    true_supported: int = 0
    false_supported: int = 0
    true_unsupported: int = 0
    false_unsupported: int = 0
    abstained_works: int = 0
    abstained_fails: int = 0

    @property
    def answered(self) -> int:
        """Cells of which something was predicted."""
        return self.true_supported + self.false_supported + self.true_unsupported + self.false_unsupported

    @property
    def total(self) -> int:
        """All cells."""
        return self.answered + self.abstained_works + self.abstained_fails

    @property
    def agreement(self) -> float | None:
        """The share of the answered that were right."""
        return _share(self.true_supported + self.true_unsupported, self.answered)

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the shares found of those that work and of those that fail, among the answered."""
        found = _share(self.true_supported, self.true_supported + self.false_unsupported)
        caught = self.caught
        return None if found is None or caught is None else (found + caught) / 2

    @property
    def caught(self) -> float | None:
        """The share of the answered failing cells that were predicted to fail."""
        return _share(self.true_unsupported, self.true_unsupported + self.false_supported)

    @property
    def wrongly_supported(self) -> float | None:
        """The share that fails of those predicted to work."""
        return _share(self.false_supported, self.true_supported + self.false_supported)

    @property
    def abstentions(self) -> float | None:
        """The share of all cells of which nothing was predicted."""
        return _share(self.abstained_works + self.abstained_fails, self.total)


def tally(pairs: Iterable[tuple[bool | None, bool]]) -> PredictionTally:
    """Count pairs of what was said (None: nothing) and whether it works."""
    counts = dict.fromkeys(_NAMES.values(), 0)
    for pair in pairs:
        counts[_NAMES[pair]] += 1
    return PredictionTally(**counts)


_NAMES: Mapping[tuple[bool | None, bool], str] = {
    (True, True): "true_supported",
    (True, False): "false_supported",
    (False, False): "true_unsupported",
    (False, True): "false_unsupported",
    (None, True): "abstained_works",
    (None, False): "abstained_fails",
}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def score(evidence: Evidence) -> Scores:
    """Hold each sealed prediction against its own run; of several runs of a cell the newest that settled it counts.

    Edited and changed suites and substituted runs settle nothing.
    """
    lines: dict[tuple[str, str], list[CheckLine]] = {}
    for line in evidence.checks:
        lines.setdefault((line.run_id, line.cell_id), []).append(line)
    scored: dict[str, Scored] = {}
    first: dict[str, Scored] = {}
    unsettled: dict[str, None] = {}
    without: set[str] = set()
    for run in sorted(evidence.runs, key=lambda run: run.started_at):
        for planned in run.plan:
            if planned.subject != _SCORED:
                continue
            sealed = _sealed(planned)
            if sealed is None:
                without.add(planned.cell_id)
                continue
            measured = _measured(run, planned, lines.get((run.run_id, planned.cell_id), []))
            if measured is None or measured.level is Level.UNKNOWN or measured.basis is not Basis.MEASURED:
                unsettled[planned.cell_id] = None
                continue
            cell = Cell.parse(planned.cell_id)
            before = scored.get(cell.id)
            if before is not None:
                first.setdefault(cell.id, before)
            scored[cell.id] = Scored(
                cell=cell,
                family=_family(cell),
                held_out=is_held_out(cell.model),
                predicted=sealed,
                measured=measured,
                run_id=run.run_id,
            )
    return Scores(
        cells=tuple(scored[name] for name in sorted(scored)),
        first=tuple(first[name] for name in sorted(first)),
        unsettled=sum(name not in scored for name in unsettled),
        without_prediction=len(without - set(scored)),
    )


def _sealed(planned: PlannedCell) -> Verdict | None:
    """The prediction in a plan; None where there is none, or where something measured is behind it."""
    try:
        verdict = Verdict.from_dict(planned.verdict or {})
    except HwCompatError:
        return None
    is_own = verdict.cell == planned.cell_id
    return verdict if is_own and verdict.basis in _PREDICTIONS and not verdict.evidence_ids else None


def _measured(run: RunLine, planned: PlannedCell, lines: Sequence[CheckLine]) -> Verdict | None:
    """What the run itself shows, on the versions that it had."""
    try:
        cell = Cell.parse(planned.cell_id)
    except HwCompatError:
        return None
    return judge_cell(
        cell,
        planned.checks,
        [line for line in lines if line.check_name in planned.checks or line.outcome.is_failure],
        expiry=Expiry.of_run(cell, run, suite_hash=planned.suite_hash),
        weights_asked=planned.subject,
        required=required_checks(cell),
    )


def _family(cell: Cell) -> str:
    try:
        recipe = load_recipe(cell.model, cell.task)
    except HwCompatError:
        recipe = None
    if recipe is not None:
        return recipe.family
    found, _ = classify_or_guess(cell.model)
    return found.family if found else "other"


Guess = Callable[[Scored], bool]


def always_yes(one: Scored) -> bool:
    """A baseline: everything works everywhere."""
    return True


def by_family(tuned: Sequence[Scored]) -> Guess:
    """A baseline that knows families alone: what most of a family's tuned types do on a target; yes where none is."""
    counts: dict[tuple[str, str], int] = {}
    for one in tuned:
        key = (one.family, str(one.cell.target))
        counts[key] = counts.get(key, 0) + (1 if one.works else -1)
    return lambda one: counts.get((one.family, str(one.cell.target)), 1) >= 0


@dataclass(frozen=True, kw_only=True)
class RuleScore:
    """How often what a rule made of a cell was right."""

    rule_id: str
    right: int
    wrong: tuple[str, ...]

    @property
    def is_poor(self) -> bool:
        """Whether it is wrong too often: more than one in twenty, and not for a single cell."""
        return len(self.wrong) > 1 and len(self.wrong) / (self.right + len(self.wrong)) > MOST_WRONG


MOST_WRONG = 0.05
"""With more, a rule says less than the measured share of types that work on cpu and on openvino."""


def by_rule(cells: Sequence[Scored]) -> tuple[RuleScore, ...]:
    """A score for each rule that counted in a prediction, the worst first."""
    right: dict[str, int] = {}
    wrong: dict[str, list[str]] = {}
    for one in cells:
        for rule_id in one.predicted.rule_ids if one.said is not None else ():
            right.setdefault(rule_id, 0)
            if one.said is one.works:
                right[rule_id] += 1
            else:
                wrong.setdefault(rule_id, []).append(one.cell.id)
    found = [RuleScore(rule_id=name, right=count, wrong=tuple(wrong.get(name, ()))) for name, count in right.items()]
    return tuple(sorted(found, key=lambda one: (-len(one.wrong) / (one.right + len(one.wrong)), one.rule_id)))
