"""Score stored predictions against what their own runs measured.

A cell that its own run didn't decide isn't scored. "Supported" is high or medium; an unknown prediction is an
abstention. A prediction that was stored with evidence behind it isn't a prediction, and is counted apart.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.compatibility.expiry import Expiry
from hwcompat.generators.compatibility.judge import judge_cell
from hwcompat.generators.compatibility.required_checks import later_checks, required_checks
from hwcompat.generators.compatibility.verdict import Basis, Level, Verdict
from hwcompat.generators.models.basic_classification import classify_or_guess
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.cell import Cell, parsed
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine, PlannedCell, RunLine
from hwcompat.hardware.evidence.store import Evidence

LIST = Path(__file__).with_name("held_out.txt")
"""The held-out types of transformers 5.5.4 and families of diffusers 0.37.1, fixed before the first rule was
tuned."""


def is_held_out(model_type: str) -> bool:
    """Whether the SHA-256 of the name, as a number, is divisible by three."""
    return int(hashlib.sha256(model_type.encode()).hexdigest(), 16) % 3 == 0


@functools.cache
def held_out() -> frozenset[str]:
    """Return the held-out types of the list."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


SUPPORTED = frozenset({Level.HIGH, Level.MEDIUM})
_SCORED_WEIGHTS = "tiny"
"""The weights that are scored: only a type is held out or isn't. A user's own model has only a name."""
_PREDICTIONS = frozenset({Basis.ASSUMED, Basis.PREDICTED})


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A cell whose stored prediction was decided by its run."""

    cell: Cell
    family: str
    held_out: bool
    predicted: Verdict
    measured: Verdict
    run_id: str

    @property
    def works(self) -> bool:
        """Whether it was measured as high or medium."""
        return self.measured.level in SUPPORTED

    @property
    def said(self) -> bool | None:
        """Whether it was predicted to work; None if the prediction abstained."""
        return None if self.predicted.level is Level.UNKNOWN else self.predicted.level in SUPPORTED


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The cells that could be scored, and how many couldn't: not decided by their run, or stored without a
    prediction.

    `first` are the cells that were predicted and decided more than once, as they were the first time: rules may have
    changed in between.
    """

    cells: tuple[Scored, ...]
    first: tuple[Scored, ...] = ()
    unsettled: int = 0
    without_prediction: int = 0


@dataclass(frozen=True, kw_only=True)
class PredictionTally:
    """Counts of predictions by result; shares are of 1, None if there is nothing to divide by."""

    true_supported: int = 0
    false_supported: int = 0
    true_unsupported: int = 0
    false_unsupported: int = 0
    abstained_works: int = 0
    abstained_fails: int = 0

    @property
    def answered(self) -> int:
        """Number of cells with a prediction."""
        return self.true_supported + self.false_supported + self.true_unsupported + self.false_unsupported

    @property
    def total(self) -> int:
        """Number of all cells."""
        return self.answered + self.abstained_works + self.abstained_fails

    @property
    def agreement(self) -> float | None:
        """The share of predictions that were right."""
        return _share(self.true_supported + self.true_unsupported, self.answered)

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the shares found of the working and of the failing cells, among those predicted."""
        found = _share(self.true_supported, self.true_supported + self.false_unsupported)
        caught = self.caught
        return None if found is None or caught is None else (found + caught) / 2

    @property
    def caught(self) -> float | None:
        """The share of failing cells, among those predicted, that were predicted to fail."""
        return _share(self.true_unsupported, self.true_unsupported + self.false_supported)

    @property
    def wrongly_supported(self) -> float | None:
        """The share of cells predicted to work that fail."""
        return _share(self.false_supported, self.true_supported + self.false_supported)

    @property
    def abstentions(self) -> float | None:
        """The share of all cells without a prediction."""
        return _share(self.abstained_works + self.abstained_fails, self.total)


def tally(pairs: Iterable[tuple[bool | None, bool]]) -> PredictionTally:
    """Count pairs of what was predicted (None: nothing) and whether it works."""
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
    """Compare each stored prediction with its own run; of several runs of a cell the newest that decided it counts.

    Edited and changed suites and substituted runs decide nothing.
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
            if planned.subject != _SCORED_WEIGHTS:
                continue
            predicted = _stored_prediction(planned)
            if predicted is None:
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
                predicted=predicted,
                measured=measured,
                run_id=run.run_id,
            )
    return Scores(
        cells=tuple(scored[name] for name in sorted(scored)),
        first=tuple(first[name] for name in sorted(first)),
        unsettled=sum(name not in scored for name in unsettled),
        without_prediction=len(without - set(scored)),
    )


def _stored_prediction(planned: PlannedCell) -> Verdict | None:
    """Return the prediction of a plan; None if there is none, or if something measured is behind it."""
    try:
        verdict = Verdict.from_dict(planned.verdict or {})
    except HwCompatError:
        return None
    is_own = verdict.cell == planned.cell_id
    return verdict if is_own and verdict.basis in _PREDICTIONS and not verdict.evidence_ids else None


def _measured(run: RunLine, planned: PlannedCell, lines: Sequence[CheckLine]) -> Verdict | None:
    """Return what the run itself shows, with the versions that it had."""
    cell = parsed(planned.cell_id)
    if cell is None:
        return None
    required = required_checks(cell)
    later = later_checks(required, planned.checks, [run.versions])
    return judge_cell(
        cell,
        planned.checks,
        [line for line in lines if line.check_name in planned.checks or line.outcome.is_failure],
        expiry=Expiry.of_run(cell, run, suite_hash=planned.suite_hash),
        weights_asked=planned.subject,
        required=[name for name in required if name not in later],
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
    """Predict that everything works: a baseline."""
    return True


def by_family(tuned: Sequence[Scored]) -> Guess:
    """Return a baseline that knows only families: what most tuned types of a family do on a target; True if there are
    none."""
    counts: dict[tuple[str, str], int] = {}
    for one in tuned:
        key = (one.family, str(one.cell.target))
        counts[key] = counts.get(key, 0) + (1 if one.works else -1)
    return lambda one: counts.get((one.family, str(one.cell.target)), 1) >= 0


_SAMPLES = 1000


def balanced_range(cells: Sequence[Scored]) -> tuple[float, float] | None:
    """Return the range of the balanced accuracy in 95 % of samples of the model types, whose cells stay together.

    None if most samples have no failing or no working cell with a prediction.
    """
    by_type: dict[str, list[Scored]] = {}
    for one in cells:
        by_type.setdefault(one.cell.model, []).append(one)
    types, draw = list(by_type.values()), random.Random(0)
    samples = (draw.choices(types, k=len(types)) for _ in range(_SAMPLES))
    tallies = (tally((one.said, one.works) for own in sample for one in own) for sample in samples)
    found = sorted(share for one in tallies if (share := one.balanced_accuracy) is not None)
    if len(found) * 2 < _SAMPLES:
        return None
    return found[round(0.025 * (len(found) - 1))], found[round(0.975 * (len(found) - 1))]


@dataclass(frozen=True, kw_only=True)
class RuleScore:
    """How often the prediction that a rule decided was right."""

    rule_id: str
    right: int
    wrong: tuple[str, ...]

    @property
    def is_poor(self) -> bool:
        """Whether it is wrong too often: in more than one of twenty cells, and for more than one cell."""
        return len(self.wrong) > 1 and len(self.wrong) / (self.right + len(self.wrong)) > MOST_WRONG


MOST_WRONG = 0.05
"""A rule with a larger share of errors says less than the measured share of types that work on cpu and on
openvino."""


def by_rule(cells: Sequence[Scored]) -> tuple[RuleScore, ...]:
    """Return a score for each rule that counted in a prediction, the worst first."""
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
