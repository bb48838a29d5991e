"""Plan and execute the runs of a sweep: one round of the runner for each break and each clean run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generators.mutants.model_anatomy import SMALLEST_CHANGE
from generators.mutants.mutation_operators import CONTROL
from generators.mutants.orders import Made, MutantJudgement, Order, judge_clean, judge_mutant
from generators.mutants.rounds import run_round
from hardware.testing.runner import Limits
from hardware.testing.suite_file import SuiteFile

JOBS = 2
DEADLINE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one suite: `mutant` is `<operator>@<seed>` or empty; `counts` is false for a control or clean run.

    `threads` is torch's number of threads, which changes the order of summation.
    """

    suite: SuiteFile
    mutant: str = ""
    counts: bool = True
    threads: int = 1

    @property
    def model(self) -> str:
        """The model type."""
        return self.suite.cell.model

    @property
    def order(self) -> Order:
        """The order for the plugin. A control uses the same code with a change of zero."""
        least = SMALLEST_CHANGE if self.counts else -1.0
        return Order(mutants=(self.mutant,) if self.mutant else (), threads=self.threads, least=least)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a job: the judgment, and the break."""

    job: Job
    judgment: MutantJudgement
    made: Made

    @property
    def good(self) -> bool:
        """Whether this is the expected result of a good suite and harness."""
        return self.judgment.status.is_good

    @property
    def site(self) -> str:
        """The site of the break, or an empty string."""
        return self.made.mutant.site if self.made.mutant else ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; infinity is the text `inf`."""
        operator, _, seed = self.job.mutant.partition("@")
        return {
            "model": self.job.model,
            "cell_id": self.job.suite.cell.id,
            "operator": operator or None,
            "seed": int(seed) if seed else None,
            "is_mutant": self.job.counts,
            "threads": self.job.threads,
            "status": str(self.judgment.status),
            "caught_by": self.judgment.caught_by or None,
            "error": _plain(self.judgment.error),
            "change": _plain(self.made.change),
            "site": self.site or None,
            "side": self.made.mutant.side if self.made.mutant else None,
            "describe": self.made.mutant.describe if self.made.mutant else None,
            "message": self.judgment.message or None,
        }


def _plain(value: float | None) -> float | str | None:
    return str(value) if value is not None and value in (float("inf"), float("-inf")) else value


def plan_rounds(suites: Sequence[SuiteFile], operators: Sequence[str], seeds: int, clean: int) -> list[list[Job]]:
    """Return all runs, one of each suite per round. Clean runs alternate: without the harness, and with a break that
    changes nothing.

    Half of both use two threads, because another order of summation must pass too.
    """
    mutants = [f"{operator}@{seed}" for operator in operators for seed in range(seeds)]
    rounds = [[Job(suite=suite, mutant=mutant) for suite in suites] for mutant in mutants]
    for number in range(clean):
        mutant, threads = f"{CONTROL}@{number}" if number % 2 else "", 1 + number // 2 % 2
        rounds.append([Job(suite=suite, mutant=mutant, counts=False, threads=threads) for suite in suites])
    return rounds


def run_rounds(rounds: Sequence[Sequence[Job]], folder: Path) -> Iterator[Result]:
    """Run all rounds and yield the results of each. All output is below `folder`."""
    for jobs in rounds:
        orders = {job.suite.path: job.order for job in jobs}
        suites = [job.suite for job in jobs]
        ran = run_round(suites, orders, folder, limits=Limits(timeout_s=DEADLINE_S), jobs=JOBS)
        for job, one in zip(jobs, ran, strict=True):
            checks = job.suite.checks
            judgment = (
                judge_mutant(checks, one.lines, one.made, least=job.order.least)
                if job.counts
                else judge_clean(checks, one.lines)
            )
            yield Result(job=job, judgment=judgment, made=one.made)
