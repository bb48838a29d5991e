"""The text of the table: kinds x operators with the check that caught each break, then rates and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from generators.mutants.mutation_operators import OPERATORS
from generators.mutants.orders import MutantStatus

from .runs import Result


def table(results: Sequence[Result]) -> str:
    """Return one line for each mutant in the order of kinds and operators, and a total."""
    mutants = sorted((result for result in results if result.job.counts), key=_order)
    rows = [
        (
            result.job.model,
            result.job.mutant,
            _caught_by(result),
            _number(result.judgment.error),
            _number(result.made.change),
            result.site or "-",
        )
        for result in mutants
    ]
    text = tabulate(rows, headers=("kind", "mutant", "caught by", "error", "change", "site"), disable_numparse=True)
    return "\n".join([text, "", *_meanings(mutants), *_sums(results)])


def _caught_by(result: Result) -> str:
    judgment = result.judgment
    return judgment.caught_by if judgment.status is MutantStatus.KILLED else str(judgment.status).upper()


def _order(result: Result) -> tuple[str, int, str]:
    operator = result.job.mutant.partition("@")[0]
    return result.job.model, list(OPERATORS).index(operator), result.job.mutant


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _meanings(mutants: Sequence[Result]) -> list[str]:
    used = {result.job.mutant.partition("@")[0] for result in mutants}
    lines = [f"{name}: {operator.describe}" for name, operator in OPERATORS.items() if name in used]
    return [*lines, "Broken is always the side under test; error and change are relative to the output's scale.", ""]


def _sums(results: Sequence[Result]) -> list[str]:
    mutants = [result for result in results if result.job.counts]
    clean = [result for result in results if not result.job.counts]
    counts = Counter(result.judgment.status for result in mutants)
    lines = [f"{bad.job.model} {bad.job.mutant or 'clean'}: {bad.judgment.message}" for bad in _bad(results)]
    if mutants:
        others = [
            f"{counts[s]} {s}"
            for s in (MutantStatus.SURVIVED, MutantStatus.EQUIVALENT, MutantStatus.ERROR)
            if counts[s]
        ]
        share = counts[MutantStatus.KILLED] / len(mutants)
        lines.append(
            ", ".join([f"killed {counts[MutantStatus.KILLED]} of {len(mutants)} mutants ({share:.1%})", *others])
        )
        different = {(r.job.model, r.job.mutant.partition("@")[0], r.site) for r in mutants}
        if len(different) < len(mutants):
            lines.append(f"{len(different)} of them differ: some seeds draw the same site, some breaks have only one")
    if clean:
        raised = sum(not result.good for result in clean)
        lines.append(f"clean runs that raised something: {raised} of {len(clean)}")
    return lines


def _bad(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if not result.good and result.judgment.message]
