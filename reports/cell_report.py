"""A cell in a report: its verdict, its stored prediction, and the latest results."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwcompat.generators.compatibility.judge import judge
from hwcompat.generators.compatibility.verdict import Level, Reason, Verdict, is_final
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.evidence.record import CheckLine, Outcome
from hwcompat.hardware.evidence.store import lines_by_cell

from .reason_text import reason_text

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo
    from hwcompat.hardware.evidence.latest import Latest


@dataclass(frozen=True, kw_only=True)
class CellReport:
    """One cell. `stored` is the JSON object of the newest plan's prediction, None if there is none."""

    verdict: Verdict
    lines: tuple[CheckLine, ...] = ()
    stored: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        """The cell's id."""
        return self.verdict.cell

    @functools.cached_property
    def subjects(self) -> str:
        """The weights that ran."""
        return _listed(line.subject for line in self.lines)

    @functools.cached_property
    def requested(self) -> str:
        """The requested targets."""
        return _listed(line.requested_target for line in self.lines)

    @functools.cached_property
    def actual(self) -> str:
        """The targets that the checks ran on; empty if none ran."""
        return _listed(line.actual_target for line in self.lines)

    @functools.cached_property
    def device(self) -> str:
        """The names of the devices that the checks ran on."""
        return _listed(line.accelerator for line in self.lines)

    @functools.cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of checks by outcome."""
        counts = Counter(line.outcome for line in self.lines)
        return {str(outcome): counts[outcome] for outcome in Outcome if counts[outcome]}

    @property
    def outcomes(self) -> str:
        """The outcomes as text: `6 passed, 1 skipped`."""
        return ", ".join(f"{number} {outcome}" for outcome, number in self.counts.items())

    @property
    def basis(self) -> str:
        """The verdict's basis as text."""
        return "nothing measured" if self.verdict.level is Level.UNKNOWN else str(self.verdict.basis)

    @property
    def predicted(self) -> Verdict | None:
        """The stored prediction; None if there is none or if it can't be read (see `prediction`)."""
        return self._read[0]

    @functools.cached_property
    def _read(self) -> tuple[Verdict | None, str]:
        try:
            return (None if self.stored is None else Verdict.from_dict(self.stored)), ""
        except HwCompatError as error:
            return None, str(error)

    @functools.cached_property
    def prediction(self) -> str:
        """The prediction before the run as text; empty if none was stored."""
        stored, error = self._read
        if stored is None:
            return f"unreadable: {error}" if error else ""
        rules = ", ".join(stored.rule_ids) or "no rule"
        return f"{stored.level} ({stored.basis}: {rules})"


def cell_reports(
    latest: Latest,
    inventory: HardwareInfo,
    models: Collection[str] | None = None,
    own_limits: Mapping[str, float] | None = None,
    verdicts: Mapping[str, Verdict] | None = None,
) -> tuple[CellReport, ...]:
    """Return a report of each cell of the evidence, for some models or (None) for all, sorted by id.

    Verdicts hold for the versions of `inventory` and a project's own tolerances. The lines of a cell are in the order
    of its newest plan.
    """
    lines = lines_by_cell(latest.checks)

    def in_order(cell_id: str) -> tuple[CheckLine, ...]:
        plan = latest.plans.get(cell_id)
        places = {check: place for place, check in enumerate(plan.checks if plan else ())}
        return tuple(sorted(lines.get(cell_id, ()), key=lambda line: places.get(line.check_name, len(places))))

    if verdicts is None:
        judged = judge(latest, inventory, own_limits=own_limits or {})
    else:
        judged = tuple(verdicts[cell] for cell in sorted(verdicts))
    return tuple(
        CellReport(
            verdict=verdict,
            lines=in_order(verdict.cell),
            stored=latest.predictions.get(verdict.cell),
        )
        for verdict in judged
        if models is None or {Cell.parse(verdict.cell).model, Cell.parse(verdict.cell).label} & set(models)
    )


def modified_checkers(cells: Iterable[CellReport]) -> list[tuple[str, str, str]]:
    """Return target, model and message of the results that a modified checker made, grouped by reason."""
    found: dict[tuple[str, Reason], list[Cell]] = {}
    for one in cells:
        cell = Cell.parse(one.verdict.cell)
        modified = [reason for reason in one.verdict.reasons if reason.code == "modified_checker"]
        for reason in modified if is_final(one.verdict) else ():
            found.setdefault((str(cell.target), reason), []).append(cell)
    return [
        (target, of[0].model, f"{len(of)} cell(s), for example {of[0].id}: {reason_text(reason)}")
        for (target, reason), of in found.items()
    ]


def _listed(texts: Any) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
