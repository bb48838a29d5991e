"""The pytest plugin that records evidence of suites, and never records a pass that wasn't shown.

A suite's folder loads it through its `conftest.py`, so that plain `pytest` records evidence too. Only the isolation
of crashes is missing there, as the run line states.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..applied_fix import current_changes
from ..backends.base import Unsupported
from ..command_names import as_runnable
from ..compare import ReferenceNotFinite
from ..errors import BrokenInput, ModelMissing, ModelRefused, is_out_of_memory
from ..evidence.error_types import current_name, type_of_exception
from ..evidence.record import EDITED, CheckLine, Origin, Outcome, RunLine, Stage
from ..evidence.writer import EvidenceWriter, new_run_id, now
from ..files import DEFAULT_EVIDENCE
from ..step_times import is_measured
from . import measurement
from .check_lines import DISK_FULL, is_full_disk, line_for
from .checks import reference_checks
from .foreign_plugins import strange_conftests, unknown_plugins
from .measurement import Ambiguous, Measurement, NotApplicable
from .model_test import ModelTest
from .speed_measurement import peak_memory, record_speed
from .suite_file import SuiteFile, read_suite

EVIDENCE_VARIABLE = "HWCOMPAT_EVIDENCE"

_REFERENCE_CHECK, _PLACEMENT_CHECK = "matches_reference", "runs_natively"
_DEVICE_ONLY = {
    _REFERENCE_CHECK: "comparing {actual_target} with itself doesn't test it",
    _PLACEMENT_CHECK: "the placement on {actual_target} doesn't test it",
}
"""Checks that concern only the requested device, and why a substitute can't answer them."""
_BREAKDOWNS = {current_name(str(one)): one for one in Outcome if one.is_breakdown}
"""Outcomes by error type for a check whose worker hung, died or ran out of memory, the same as for a process."""

_LONGEST_MESSAGE = 4_000
_LONGEST_TRACEBACK = 12_000


def pytest_configure(config: pytest.Config) -> None:
    """Record evidence for the suites of this session unless a runner does."""
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    if not any(isinstance(plugin, EvidenceRecorder) for plugin in config.pluginmanager.get_plugins()):
        config.pluginmanager.register(EvidenceRecorder())


def classify_error(error: BaseException, check: str, measured: Measurement) -> tuple[Outcome, str]:
    """Return the outcome and error type of a check that raised."""
    if isinstance(error, Ambiguous):
        return Outcome.AMBIGUOUS, "ambiguous"
    if isinstance(error, NotApplicable):
        return Outcome.SKIPPED, "not_applicable"
    if isinstance(error, pytest.skip.Exception):
        return Outcome.SKIPPED, "skipped"
    if is_full_disk(error):
        return Outcome.NOT_RUN, DISK_FULL
    if is_out_of_memory(error):
        return Outcome.OUT_OF_MEMORY, "out_of_memory"
    error_type = _error_type(error, check, measured)
    return _BREAKDOWNS.get(error_type, Outcome.FAILED), error_type


def _error_type(error: BaseException, check: str, measured: Measurement) -> str:
    if isinstance(error, Unsupported | ModelRefused):
        return error.error_type
    if isinstance(error, ModelMissing):
        return "weights_missing"
    if isinstance(error, ReferenceNotFinite):
        return "reference_not_finite"
    if isinstance(error, ImportError):
        return "missing_dependency"
    if not isinstance(error, AssertionError):
        return type_of_exception(error) or "unknown"
    if check == "runs_natively" or (measured.execution is not None and measured.stage is Stage.RUN):
        return "silent_offload"  # ONNX's tests ask where they ran after they compared
    if check in reference_checks():
        return "relation_broken"
    if measured.comparison is not None and not measured.comparison.finite:
        return "non_finite"
    return "numerical_mismatch"


def _register_devices(suites: Iterable[SuiteFile]) -> None:
    """Register torch devices made in Python before a suite on another target computes a gradient. torch starts its
    threads for gradients once, for the devices known by then; a later device gets none."""
    from ..backends.factory import backend_class, get_backend, known_targets

    for target in {suite.cell.target.name for suite in suites} & set(known_targets()):
        if backend_class(target).SIMULATED:
            get_backend(target).unavailable()


class EvidenceRecorder:
    """Write one evidence line for each check of each suite.

    With a `writer` it belongs to a run that a runner planned; without, it opens a run of its own. `on_start` is
    called with the name of each check before it starts, `on_full_disk` with the error if the session breaks down for
    lack of disk space. A suite whose hash isn't `planned_hash`, if given, is refused.
    """

    def __init__(
        self,
        writer: EvidenceWriter | None = None,
        on_start: Callable[[str], None] = lambda _name: None,
        on_full_disk: Callable[[BaseException], None] = lambda _error: None,
        planned_hash: str = "",
    ) -> None:
        self._owned = writer is None
        self._writer = writer
        self._on_start = on_start
        self._on_full_disk = on_full_disk
        self._planned_hash = planned_hash
        self._suites: dict[Path, SuiteFile | None] = {}
        self._not_imported: dict[SuiteFile, str] = {}
        self._counts: Counter[str] = Counter()
        self._started = ("", 0.0)
        self._root = Path()
        self._outcomes: dict[Path, set[Outcome]] = {}
        self._is_last = False

    # Planning

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        suites = {s.path: s for s in (self._suite(item.path) for item in session.items) if s is not None}
        suites |= {suite.path: suite for suite in self._not_imported}
        for suite in suites.values() if self._planned_hash else ():
            if suite.suite_hash != self._planned_hash:
                raise pytest.UsageError(f"{suite.path.name} was changed after planning, by another run or by hand")
        if self._owned and suites and not session.config.option.collectonly:
            _register_devices(suites.values())
            self._open_run(list(suites.values()))
        for suite, text in self._not_imported.items():
            self._write_import_failures(suite, text, _loaded_beside(suite, session.config))

    def _open_run(self, suites: Sequence[SuiteFile]) -> None:
        from ..detection import detect
        from ..evidence.versions import versions_of
        from ..evidence.writer import machine_label

        named = os.environ.get(EVIDENCE_VARIABLE, str(DEFAULT_EVIDENCE))
        if "://" in named:  # as a path it would be the folder `s3:`
            raise pytest.UsageError(f"{EVIDENCE_VARIABLE} must be a folder; publish evidence after the run")
        folder = Path(named)
        inventory = detect()
        self._writer = EvidenceWriter(folder, new_run_id())
        self._writer.write(
            RunLine(
                run_id=self._writer.run_id,
                started_at=now(),
                command=shlex.join(["python", "-m", "pytest", *sys.argv[1:]]),
                machine=machine_label(),
                inventory=inventory.to_dict(),
                versions=versions_of(inventory),
                plan=tuple(suite.planned() for suite in suites),
                isolation="none: a crash in one check ends the session",
                origin=Origin.CHANGED if current_changes().text else Origin.HWCOMPAT,
            )
        )

    def _suite(self, path: Path) -> SuiteFile | None:
        if path not in self._suites:
            try:
                self._suites[path] = read_suite(path)
            except BrokenInput:  # pytest's own collection reports the reason
                self._suites[path] = None
        return self._suites[path]

    # One check

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self._is_last = nextitem is None or nextitem.path != item.path

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        suite = self._suite(item.path)
        if suite is not None:
            measurement.keeps_references = not self._owned and not suite.edited
            self._started = (now(), time.perf_counter())
            self._on_start(_check_name(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None and is_out_of_memory(call.excinfo.value):
            traceback.clear_frames(call.excinfo.tb)  # free what the check took, or the report has no memory either
        report = yield
        suite = self._suite(item.path)
        if suite is None or self._writer is None or not _decides(report):
            return report
        line = self._line(suite, item, call)
        self._writer.write(line)
        outcomes = self._outcomes.setdefault(suite.path, set())
        outcomes.add(line.outcome)
        if is_measured() and self._is_last:
            record_speed(self._writer, line, getattr(item, "funcargs", {}).get("case"), outcomes, self._on_start)
        self._counts[line.outcome] += 1
        if line.outcome in (Outcome.PASSED_ON_FALLBACK, Outcome.AMBIGUOUS, Outcome.SKIPPED):
            reason = line.error_message or f"ran on {line.actual_target}: {line.substitution_reason}"
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"{line.outcome}: {reason}")
        elif line.outcome is Outcome.FAILED and report.passed:
            report.outcome = "failed"
            report.longrepr = line.error_message
        return report

    def _line(self, suite: SuiteFile, item: pytest.Item, call: pytest.CallInfo[None]) -> CheckLine:
        check = _check_name(item)
        case = getattr(item, "funcargs", {}).get("case")
        measured = case.take_measurement() if isinstance(case, ModelTest) else Measurement()
        facts, why_no_facts = _facts_of(case)
        outcome, error_type, message, trace = Outcome.PASSED, "", "", ""
        error = call.excinfo.value if call.excinfo is not None else None
        if facts.get("substitution_reason") and _is_unanswered(check, error):
            outcome, error_type = Outcome.SKIPPED, "same_device"
            message = f"same device: {facts['requested_target']} not found, and "
            message += _DEVICE_ONLY[check].format(**facts)
        elif error is not None:
            outcome, error_type = classify_error(error, check, measured)
            message = _message(error, measured)
            trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
        elif not isinstance(case, ModelTest):
            outcome, error_type = Outcome.AMBIGUOUS, "ambiguous"
            message = "it passed without using ModelTest, so the device that ran it is unknown"
        elif why_no_facts:
            outcome, error_type, message = (
                Outcome.FAILED,
                "unknown",
                f"the device that ran it is unknown: {why_no_facts}",
            )
        elif facts.get("substitution_reason"):
            outcome = Outcome.PASSED_ON_FALLBACK
        elif left := sorted(set(measured.left_to_host) - case.backend.HOST_ALLOWED):
            outcome, error_type = Outcome.FAILED, "silent_offload"
            message = (
                f"correct, but not computed on {facts['actual_target']} alone: {', '.join(left)} ran on the host"
            )
        facts["conditions"] = {**facts.get("conditions", {}), **_loaded_beside(suite, item.config)}
        started_at, started = self._started
        comparison, proof = measured.comparison, measured.execution
        return line_for(
            suite,
            self._writer.run_id if self._writer else "",
            check,
            outcome,
            stage=None if outcome is Outcome.PASSED else measured.stage,
            error_type=error_type,
            error_message=message,
            traceback=trace,
            started_at=started_at,
            duration_s=round(time.perf_counter() - started, 6),
            max_abs_error=comparison.max_abs_error if comparison else None,
            max_rel_error=comparison.max_rel_error if comparison else None,
            tolerance=measured.tolerance,
            native_ops=proof.native if proof else {},
            offloaded_ops={**measured.left_to_host, **(proof.offloaded if proof else {})},
            unseen=proof.unseen if proof else "",
            latency_ms=measured.latency_ms,
            peak_memory_bytes=peak_memory(),
            batch=measured.batch,
            sequence_length=measured.sequence_length,
            **facts,
        )

    # Suites without a check that ran

    def pytest_configure(self, config: pytest.Config) -> None:
        if sys.flags.optimize:
            raise pytest.UsageError("python -O removes assertions, so every check would pass")
        self._root = config.rootpath
        measurement.active = True

    def pytest_unconfigure(self) -> None:
        measurement.active, measurement.keeps_references = False, True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a suite that can't be imported: it fails in all its checks, at the stage `import`."""
        path = self._root / report.nodeid
        if not report.failed or path.suffix != ".py":
            return
        suite = self._suite(path)
        if suite is not None:
            self._not_imported[suite] = str(report.longrepr)

    def _write_import_failures(self, suite: SuiteFile, text: str, conditions: dict[str, str]) -> None:
        if self._writer is None:  # with --collect-only nothing is recorded
            return
        for check in suite.checks:
            line = _import_failure(self._writer.run_id, suite, check, text, conditions)
            self._writer.write(line)
            self._counts[line.outcome] += 1

    @pytest.hookimpl(tryfirst=True)  # other plugins write the error, which would fail again
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if is_full_disk(excinfo.value):
            self._on_full_disk(excinfo.value)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if not self._owned or self._writer is None:
            return
        reason = "interrupted" if exitstatus == pytest.ExitCode.INTERRUPTED else "finished"
        self._writer.end(reason, self._counts)
        self._writer.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._owned and self._writer is not None:
            isolating = as_runnable("hwcompat run isolates each suite")
            note = f"plain pytest: a crash would end the session; {isolating}"
            terminalreporter.write_line(f"Evidence: {self._writer.path} ({note})")
            for why in self._not_counted(terminalreporter.config):
                terminalreporter.write_line(f"Results of these suites don't count: {why}")

    def _not_counted(self, config: pytest.Config) -> list[str]:
        """Return why results of this session don't count, whatever they are."""
        suites = [suite for suite in self._suites.values() if suite is not None]
        files = {path for suite in suites for path in strange_conftests(suite.path)}
        edited = sorted(suite.path.name for suite in suites if suite.edited)
        return [
            *(
                f"the plugin {name} is loaded (without it: -p no:NAME)"
                for name in unknown_plugins(config.pluginmanager)
            ),
            *(f"the setting usefixtures applies {name} to each test" for name in config.getini("usefixtures")),
            *(f"{path} has hooks, fixtures or calls that could change the checks" for path in sorted(files)),
            *(f"{name} was edited by hand (generate it again with --force)" for name in edited),
        ]


def _loaded_beside(suite: SuiteFile, config: pytest.Config) -> dict[str, str]:
    """Return the condition of a check beside a plugin, fixture or conftest.py that could change what it means."""
    others = [*unknown_plugins(config.pluginmanager), *config.getini("usefixtures")]
    others += ["another conftest.py"] if strange_conftests(suite.path) else []
    return {EDITED: f"beside {', '.join(others)}"} if others else {}


def _message(error: BaseException, measured: Measurement) -> str:
    """Return the error message: how far and where numbers differ, or else the error's own text."""
    comparison, limit = measured.comparison, measured.tolerance
    if isinstance(error, AssertionError):
        if comparison is not None and limit is not None and not comparison.max_rel_error <= limit:
            return f"off by {comparison}; the tolerance is {limit:.0e}"
        return (str(error).splitlines() or ["the assertion failed"])[0][:_LONGEST_MESSAGE]
    return f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]


def _is_unanswered(check: str, error: BaseException | None) -> bool:
    """Whether a check's result on a substitute doesn't answer it. Wrong numbers do: they are the substitute's."""
    return check in _DEVICE_ONLY and (
        error is None or (check == _PLACEMENT_CHECK and isinstance(error, AssertionError))
    )


def _check_name(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", item.name)).removeprefix("test_")


def _decides(report: pytest.TestReport) -> bool:
    """Whether a phase decides a check: the call does, and so do a failed or skipped setup and a failed teardown."""
    return bool(report.when == "call" or report.outcome != "passed")


def _facts_of(case: object) -> tuple[dict[str, Any], str]:
    """Return the facts of a case, or why it has none."""
    if not isinstance(case, ModelTest):
        return {}, ""
    try:
        return case.facts(), ""
    except Exception as error:  # backends may raise any class; a check without facts isn't a pass
        return {}, f"{type(error).__name__}: {error}"


def _import_failure(run_id: str, suite: SuiteFile, check: str, text: str, conditions: dict[str, str]) -> CheckLine:
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    missing = "ModuleNotFoundError" in text or "ImportError" in text
    return line_for(
        suite,
        run_id,
        check,
        Outcome.FAILED,
        stage=Stage.IMPORT,
        error_type="missing_dependency" if missing else "unknown",
        error_message=last.removeprefix("E").strip()[:_LONGEST_MESSAGE],
        traceback=text[-_LONGEST_TRACEBACK:],
        conditions=conditions,
    )
