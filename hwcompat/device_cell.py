"""The fixture `device_cell`: a test of a user's own module on a target, with a float64 reference and placement proof.

The two checks and their evidence lines are made here, so that what pytest loads beside the test doesn't change them.
They are two of the checks of a generated suite: alone they can show that a target fails, but not that a cell works.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from .generators.compatibility.verdict import Level
from .generators.project.expected_results import PASS, read_expected, word_of
from .generators.project.project_file import Expectation
from .hardware.backends.factory import backend_class, get_backend, resolve_target
from .hardware.basic_detection import inventory_here
from .hardware.cell import MODULE_TASK, Cell
from .hardware.errors import HwCompatError, UsageError
from .hardware.evidence.record import EDITED, CheckLine, Outcome, RunLine
from .hardware.evidence.versions import versions_of
from .hardware.evidence.writer import EvidenceWriter, machine_label, new_run_id, now
from .hardware.files import DEFAULT_EVIDENCE
from .hardware.plain_text import one_line
from .hardware.testing import measurement
from .hardware.testing.factory_module import FactoryModule, from_factory
from .hardware.testing.own_module_test import OwnModuleTest
from .hardware.testing.pytest_plugin import EVIDENCE_VARIABLE, EvidenceRecorder
from .hardware.testing.reference import as_reference, float64_outputs
from .hardware.testing.suite_file import SuiteFile
from .hardware.testing.tolerances import too_wide

if TYPE_CHECKING:
    import torch

Checks = Sequence[Callable[[], None]]
CHECKS = ("matches_reference", "runs_natively")
_LONGEST_NAME = 100
_LONGEST_MESSAGE = 500
_NONE: Mapping[str, Expectation] = MappingProxyType({})


class DeviceCell(OwnModuleTest):
    """A user's module on a target: `run`, `reference`, `error`, `tolerance` and `execution` as in a generated suite.

    `check` makes both checks and records them.
    """

    def __init__(
        self,
        made: Callable[[Any], FactoryModule],
        example: Any,
        record: Callable[[DeviceCell, Checks], None],
        **named: Any,
    ) -> None:
        first = made(example)
        if first.paired:
            raise UsageError(
                "the factory returns example inputs too", fix="Return the module alone, and give the inputs."
            )
        outputs = tuple(float64_outputs(as_reference(first.model), first.inputs))
        super().__init__(
            make_model=lambda: made(example).model,
            inputs=first.inputs,
            gain=None,
            outputs=outputs,
            weights="config",
            inputs_from="given",
            **named,
        )
        self._record, self._arrays = record, lambda given: made(given).inputs
        self._floats = backend_class(self.cell.target.name).COMPUTES_IN.get(self.cell.precision, self.cell.precision)

    def check(self, *others: Any) -> None:
        """Compare the outputs with float64 on the CPU for the example and for `others`, and prove that every operator
        ran on the target. `others` are the arguments of forward, as in the example.

        Fails the test unless the result is the expected one.
        """

        def matches_reference() -> None:
            for inputs in (self.inputs, *map(self._arrays, others)):
                assert self.error(self.run(inputs), self.reference(inputs)) <= self.tolerance

        def runs_natively() -> None:
            execution = self.execution()
            assert execution.native, "the runtime names no operator that ran on the target"
            assert not execution.beyond_allowed, f"ran on the host: {', '.join(execution.beyond_allowed)}"
            assert execution.dtype == self._floats, f"computed in {execution.dtype}, not {self._floats}"

        self._record(self, (matches_reference, runs_natively))


class _CellRecorder(EvidenceRecorder):
    """Makes and writes lines as in a plain run of suites. It is no plugin: it doesn't see the session's tests.

    The plan is known at the end alone, so that a crash of the session leaves no evidence.
    """

    def __init__(self) -> None:
        super().__init__()
        self._began, self._run_id = now(), new_run_id()

    def line(self, suite: SuiteFile, case: DeviceCell, check: Callable[[], None], config: pytest.Config) -> CheckLine:
        """Run a check and return its line."""
        self._started = now(), time.perf_counter()
        error: BaseException | None = None
        try:
            check()
        except Exception as raised:  # of the user's module, or of a runtime
            error = raised
        call = SimpleNamespace(excinfo=error and pytest.ExceptionInfo.from_exception(error))
        item = SimpleNamespace(name=f"test_{check.__name__}", funcargs={"case": case}, config=config)
        line = self._line(suite, cast(Any, item), cast(Any, call))
        return replace(line, conditions={name: text for name, text in line.conditions.items() if name != EDITED})

    def write_run(self, suites: Sequence[SuiteFile], lines: Iterable[CheckLine], reason: str) -> Path:
        """Write a run of these suites and return its file."""
        inventory = inventory_here()
        run = RunLine(
            run_id=self._run_id,
            started_at=self._began,
            command=shlex.join(["python", "-m", "pytest", *sys.argv[1:]]),
            machine=machine_label(),
            inventory=inventory.to_dict(),
            versions=versions_of(inventory),
            plan=tuple(suite.planned() for suite in suites),
            isolation="none: a test of the user's own, in one process",
        )
        writer = EvidenceWriter(Path(os.environ.get(EVIDENCE_VARIABLE, str(DEFAULT_EVIDENCE))), run.run_id)
        counts: Counter[str] = Counter()
        writer.write(run)
        for line in lines:
            writer.write(replace(line, run_id=run.run_id))
            counts[line.outcome] += 1
        writer.end(reason, counts)
        writer.close()
        return writer.path


class DeviceCells:
    """The cells of a session: makes them, judges their results by the expected ones, and writes their evidence at the
    end, as one run."""

    def __init__(self, config: pytest.Config) -> None:
        if sys.flags.optimize:
            raise pytest.UsageError("python -O removes assertions, so every check would pass")
        if "://" in os.environ.get(EVIDENCE_VARIABLE, ""):
            raise pytest.UsageError(f"{EVIDENCE_VARIABLE} must be a folder; publish evidence after the run")
        self._recorder = _CellRecorder()
        self._written = ""
        self._found: dict[str, tuple[SuiteFile, list[CheckLine]]] = {}
        given = config.getoption("--hwcompat-expected")
        try:
            self._expected = read_expected(Path(given)) if given else _NONE
        except HwCompatError as error:
            raise pytest.UsageError(str(error)) from error

    @pytest.fixture
    def device_cell(self, request: pytest.FixtureRequest) -> Iterator[Callable[..., DeviceCell]]:
        """Return a function `(module, inputs, target, precision="float32", *, name="", tolerance=None, reason="")`.

        `module` is a `torch.nn.Module` or a function without arguments that returns one; `inputs` are the arguments
        of its forward, by name or in their order. The test is skipped if the target isn't on this machine. A
        `tolerance` of one's own is relative to the output's scale and needs a `reason`.
        """
        with ExitStack() as stack:

            def make(
                module: torch.nn.Module | Callable[[], torch.nn.Module],
                inputs: Any,
                target: str,
                precision: str = "float32",
                *,
                name: str = "",
                tolerance: float | None = None,
                reason: str = "",
            ) -> DeviceCell:
                model = _slug(name or f"{request.path.stem}.{request.node.name}")
                cell = Cell(model=model, task=MODULE_TASK, target=resolve_target(target), precision=precision)
                if tolerance is not None and not (reason and 0 < tolerance < too_wide()):
                    raise UsageError(f"a tolerance needs a reason and must be below {too_wide():g}")
                if absent := get_backend(cell.target).unavailable():
                    pytest.skip(f"{target} isn't available: {absent}")
                self._plan(cell, request.path)
                import torch

                factory = (lambda: module) if isinstance(module, torch.nn.Module) else module
                case = DeviceCell(
                    functools.partial(from_factory, factory),
                    inputs,
                    functools.partial(self._check, request.config),
                    cell=cell.id,
                    tolerance=tolerance,
                    tolerance_reason=reason,
                )
                return stack.enter_context(case)

            with _references_not_kept():
                yield make

    def _plan(self, cell: Cell, path: Path) -> None:
        if cell.id in self._found:
            raise UsageError(f"{cell.id} is tested twice", fix="Name each with name=…")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        suite = SuiteFile(path=path, cell=cell, subject="config", checks=CHECKS, suite_hash=digest)
        self._found[cell.id] = suite, []

    def _check(self, config: pytest.Config, case: DeviceCell, checks: Checks) -> None:
        suite, lines = self._found[case.cell.id]
        lines += [self._recorder.line(suite, case, check, config) for check in checks]
        self._decide(case.cell.id, lines)

    def _decide(self, cell_id: str, lines: list[CheckLine]) -> None:
        """End the test as the results and the expected one say."""
        wrong = [line for line in lines if line.outcome is not Outcome.PASSED]
        got = word_of(Level.UNSUPPORTED if wrong else Level.HIGH, lines)
        said = "; ".join(
            f"{one.check_name} {one.outcome}: {one_line(one.error_message)[:_LONGEST_MESSAGE]}" for one in wrong
        )
        expected = self._expected.get(cell_id)
        wanted = expected.word if expected else PASS
        where = f", line {expected.line} of {expected.file}" if expected else ""
        if wrong and not any(line.outcome.is_failure for line in wrong):
            if expected:
                pytest.fail(f"{cell_id}: not decided (expected: {wanted}{where}): {said}", pytrace=False)
            pytest.skip(f"{cell_id}: {said}")
        if got == wanted and wrong:
            pytest.xfail(f"{cell_id}: {got}, as expected{where}: {said}")
        if got == wanted:
            return
        if not wrong:
            pytest.fail(f"{cell_id} passes now; {wanted} is expected{where}: change it to {PASS}", pytrace=False)
        pytest.fail(f"{cell_id}: {got} (expected: {wanted}{where}): {said}", pytrace=False)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the evidence of the session's cells; a folder that can't be written ends the session as misuse."""
        done = [(suite, lines) for suite, lines in self._found.values() if lines]
        if done:
            lines = [line for _, own in done for line in own]
            reason = "interrupted" if exitstatus == pytest.ExitCode.INTERRUPTED else "finished"
            try:
                self._written = str(self._recorder.write_run([suite for suite, _ in done], lines, reason))
            except HwCompatError as error:
                self._written, session.exitstatus = f"not written: {error}", pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Name the evidence, and the expected results of cells that weren't tested."""
        if self._written:
            terminalreporter.write_line(f"Evidence: {self._written}")
        if getattr(config.option, "dist", "no") != "no":  # this process distributes tests to others
            return
        tested = {cell for cell, (_, lines) in self._found.items() if lines}
        if idle := sorted(self._expected.keys() - tested):
            terminalreporter.write_line(f"Expected and not tested here: {', '.join(idle)}")


@contextmanager
def _references_not_kept() -> Iterator[None]:
    """Store no reference that this process computed: other runs would rely on it."""
    before, measurement.keeps_references = measurement.keeps_references, False
    try:
        yield
    finally:
        measurement.keeps_references = before


def _slug(text: str) -> str:
    """Return a text as the model of a cell."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")[:_LONGEST_NAME] or "test"
