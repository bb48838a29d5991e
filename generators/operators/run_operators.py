"""Write and run the suites of operators on one target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.compatibility.operators import known_tables
from hwcompat.generators.compatibility.operators.operator_names import recorded
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.generators.suites.suite_files import prepare_folder, write_suite
from hwcompat.hardware.backends.factory import get_backend, known_targets
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import NothingMatched, UsageError, did_you_mean, echo
from hwcompat.hardware.evidence.record import CheckLine
from hwcompat.hardware.evidence.store import read_run
from hwcompat.hardware.inventory.hardware_info import HardwareInfo
from hwcompat.hardware.operators.node_test import PREFIX
from hwcompat.hardware.process import Answering
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.progress import Progress
from hwcompat.hardware.testing.pytest_environment import DEVICES_VARIABLE, environment_with
from hwcompat.hardware.testing.runner import Limits
from hwcompat.hardware.testing.session import run_session
from hwcompat.hardware.testing.suite_file import SuiteFile, read_suite

from .onnx_node_tests import write_nodes
from .operator_results import OperatorReport, computed_in, report_of
from .operator_variants import called_by_models, calls_of, needing_types, operators_with_suites
from .render_operator import operator_cell, render_operator

_PATIENCE_S = 120.0
_LONGEST = 4_000
_ANSWERED = b"="
"""The first byte of each answer of a child: a child that crashed sends none."""


@dataclass(frozen=True, kw_only=True)
class OperatorRun:
    """What to run: these operators on `target` in `precisions`; suites and evidence are written below `folder`."""

    target: Target
    operators: tuple[str, ...]
    precisions: tuple[str, ...]
    folder: Path
    command: str
    limits: Limits
    jobs: int | None = None
    breadth: bool = False
    """Whether operators that models call are called as in torch's own tests too."""


def chosen_operators(names: Sequence[str], model: str = "", *, breadth: bool = False) -> tuple[str, ...]:
    """Return the tested operators with these names (`aten.` may be left out), or those that a model type calls, or
    all that models call; with `breadth` those of torch's own tests too. Raises `UsageError` for an unknown name and
    `NothingMatched` if none is left."""
    known, called = operators_with_suites(), len(called_by_models())
    wanted = [name if name.startswith("aten.") else f"aten.{name}" for name in names]
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"{echo(name)} has no suite",
                why=f"suites test {called} operators that models call, and with --breadth {len(known) - called} more",
                fix=did_you_mean(name, known),
            )
    of_model = set(recipe_for(model).operators) if model else set(known if breadth or wanted else called_by_models())
    chosen = tuple(name for name in known if name in of_model and (not wanted or name in wanted))
    if not chosen:
        raise NothingMatched("no operator is left", why=f"{echo(model)} calls none of them" if model else "")
    return chosen


def run_operators(
    run: OperatorRun, inventory: HardwareInfo, progress: Progress
) -> tuple[OperatorReport, Sequence[CheckLine]]:
    """Run the suites, and return the results with those of all checks. Raises `KeyboardInterrupt` after an
    interruption was recorded."""
    suites = list(_written(run, computed_in(run.target, run.precisions)))
    if not suites:
        return report_of((), run.target, run.operators, run.precisions, "no suite ran"), ()
    with environment_with({DEVICES_VARIABLE: str(run.target) if run.target.index is not None else None}):
        session = run_session(
            suites,
            [suite.planned() for suite in suites],
            inventory,
            evidence=run.folder / "evidence",
            command=run.command,
            limits=run.limits,
            jobs=run.jobs,
            progress=progress,
        )
    if session.interrupted:
        raise KeyboardInterrupt
    lines = read_run(run.folder / "evidence", session.run_id).checks
    source = f"run {session.run_id}"
    return report_of(lines, run.target, run.operators, run.precisions, source, breadth=run.breadth), lines


def target_of(name: str) -> Target:
    """Return the target with a name or an alias. Raises `UsageError`."""
    target = Target.parse(name)
    known = sorted({*known_targets(), *known_tables()})
    if target.name not in known:
        fix = did_you_mean(target.name, known) or f"Known: {', '.join(known)}."
        raise UsageError(f"{echo(name)} isn't a target", fix=fix)
    return target


def why_unavailable(target: Target) -> str:
    """Return why a target can't be used here, or an empty text. A child process imports its runtime, since children
    are forked only from a process without it."""
    child = Answering(lambda: _ANSWERED + get_backend(target).unavailable().encode())
    answer = child.answer_in(_PATIENCE_S, _LONGEST)
    if not answer.startswith(_ANSWERED):
        return f"its runtime crashed, or didn't answer in {_PATIENCE_S:g} s"
    return answer.removeprefix(_ANSWERED).decode(errors="replace")


def _written(run: OperatorRun, precisions: Sequence[str]) -> Iterator[SuiteFile]:
    """Write the suites of a run, also over edited ones, and yield them. Each operator has a folder: pytest looks at
    every file beside a suite, which takes longer than most calls."""
    yield from write_nodes(
        [name for name in run.operators if name.startswith(PREFIX)], run.target, run.folder / "suites"
    )
    for name in run.operators:
        if name.startswith(PREFIX):
            continue
        folder = run.folder / "suites" / name
        prepare_folder(folder)
        calls = calls_of(name, breadth=run.breadth)
        own = precisions if calls.has_precision else ("float32",)
        for precision in own:
            cell: Cell = operator_cell(name, run.target, precision)
            text = render_operator(calls, cell, needing_types().get(name, ()), of_types=int(recorded()["types"]))
            file = f"test_{cell.slug}.py"
            write_suite(folder, file, text, force=True)
            suite = read_suite(folder / file)
            assert suite is not None  # a rendered suite has a cell
            yield suite
