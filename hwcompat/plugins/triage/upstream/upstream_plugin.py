"""The pytest plugin in the child that runs transformers' tests: it prepares the device and records each outcome.

It is loaded before the checkout's own conftest, which would put the checkout's sources in front of the installed
library. Records are JSON objects, a line each, in the file that `RECORD_VARIABLE` names; their `kind` is one of:

session    `transformers` and `torch` (versions), `torch_device` as transformers' tests see it, `device_name`
refused    `reason`: the device can't be used, so nothing runs
unreadable `reason`: a file that couldn't be collected
collected  `tests`: names of all tests that were chosen, in their order
began      `test`
ended      `test`, `outcome`, `error_type`, `message`, `traceback`, `duration_s`, `torch_device` of its module
over       `code`: pytest's exit code
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hwcompat.hardware.errors import BackendUnavailable, HwCompatError
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.process import die_with_parent
from hwcompat.hardware.values import data_file

from .device_spec import SPEC_VARIABLE

RECORD_VARIABLE = "HWCOMPAT_UPSTREAM_RECORD"
TARGET_VARIABLE = "HWCOMPAT_UPSTREAM_TARGET"

FAILED = "upstream_test_failed"
NEEDS_NETWORK = "needs_network"
SKIPPED = "skipped"

_NETWORK = Path(__file__).with_name("network.toml")
_LONGEST_MESSAGE = 2_000
_LONGEST_TRACEBACK = 12_000


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One report of a test: `when` is setup, call or teardown. A subtest has a `call` report of its own."""

    when: str
    outcome: str
    message: str = ""
    traceback: str = ""
    network: bool = False


def outcome_of(phases: Sequence[Phase]) -> tuple[Outcome, str, Phase]:
    """Return the outcome of a test, the error type, and the report that shows it.

    A failure of any part is a failure, unless all are due to the missing network: then the device wasn't tested. A
    test that was skipped, as a whole or in each of its subtests, isn't a pass.
    """
    failures = [phase for phase in phases if phase.outcome == "failed"]
    own = [phase for phase in failures if not phase.network]
    if own:
        return Outcome.FAILED, FAILED, own[0]
    if failures:
        return Outcome.NOT_RUN, NEEDS_NETWORK, failures[0]
    skipped = [phase for phase in phases if phase.outcome == "skipped"]
    calls = [phase for phase in phases if phase.when == "call"]
    subtests = calls[:-1]
    if skipped and (not calls or calls[-1].outcome == "skipped"):
        return Outcome.SKIPPED, SKIPPED, skipped[-1]
    if subtests and all(phase.outcome == "skipped" for phase in subtests):
        return Outcome.SKIPPED, SKIPPED, subtests[0]
    if not calls:
        return Outcome.NOT_RUN, "not_reached", Phase(when="setup", outcome="", message="the test body didn't run")
    return Outcome.PASSED, "", calls[-1]


def needs_network(error: BaseException) -> bool:
    """Whether the cause of an exception is a file that isn't in the cache and can't be fetched."""
    signs = data_file(_NETWORK)
    for one in _chain(error):
        if any(f"{base.__module__}.{base.__qualname__}" in signs["exceptions"] for base in type(one).__mro__):
            return True
        if isinstance(one, OSError) and any(message in str(one) for message in signs["messages"]):
            return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its chain of causes and contexts."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def name_of(nodeid: str) -> str:
    """Return for example `BertModelTest::test_config`: pytest's id of a test without its file."""
    return nodeid.partition("::")[2] or nodeid


class UpstreamRecorder:
    """Records the outcome of each test, as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phases: dict[str, list[Phase]] = {}
        self._began = 0.0
        self._devices: dict[str, str | None] = {}

    def write(self, kind: str, **facts: Any) -> None:
        """Append one record."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **facts}) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write("unreadable", reason=report.longreprtext[-_LONGEST_MESSAGE:])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.write("collected", tests=[name_of(item.nodeid) for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._phases[nodeid] = []
        self._began = time.monotonic()
        self.write("began", test=name_of(nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        raised = call.excinfo.value if call.excinfo else None
        failed = report.outcome == "failed"
        self._devices[item.nodeid] = getattr(getattr(item, "module", None), "torch_device", None)
        self._phases.setdefault(item.nodeid, []).append(
            Phase(
                when=report.when,
                outcome=report.outcome,
                message=_message(report, raised),
                traceback=report.longreprtext[-_LONGEST_TRACEBACK:] if failed else "",
                network=failed and raised is not None and needs_network(raised),
            )
        )
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, error_type, phase = outcome_of(self._phases.pop(nodeid, ()))
        passed = outcome is Outcome.PASSED
        self.write(
            "ended",
            test=name_of(nodeid),
            outcome=str(outcome),
            error_type=error_type,
            message="" if passed else phase.message,
            traceback="" if passed else phase.traceback,
            duration_s=time.monotonic() - self._began,
            torch_device=self._devices.pop(nodeid, None),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.write("over", code=int(exitstatus))


def _message(report: pytest.TestReport, raised: BaseException | None) -> str:
    if report.outcome == "skipped":
        expected = getattr(report, "wasxfail", None)
        if expected is not None:
            return f"expected to fail: {expected}".rstrip(": ")
        place = report.longrepr
        return (str(place[2]) if isinstance(place, tuple) else str(place)).removeprefix("Skipped: ")
    if raised is None:
        return report.longreprtext[:_LONGEST_MESSAGE]
    return f"{type(raised).__name__}: {raised}"[:_LONGEST_MESSAGE]


def _prepared(target: str) -> dict[str, Any]:
    """Return the facts of the session after preparing the target's device and describing it to transformers' tests.
    Raises if it can't be used, or if the tests would run on another one."""
    from hwcompat.hardware.backends.factory import get_backend
    from hwcompat.hardware.known_answer import agrees

    backend = get_backend(target)  # before torch is imported, which reads the environment
    if reason := backend.unavailable():
        raise BackendUnavailable(f"{target} can't be used", why=reason)
    if not agrees(answer := backend.known_answer()):
        raise BackendUnavailable(f"{target} can't be used", why=f"the known-answer test returned {answer}")
    import torch
    import transformers
    from transformers import testing_utils

    if testing_utils.torch_device != backend.device.type:
        raise BackendUnavailable(
            f"transformers' tests would run on {testing_utils.torch_device}, not on {backend.device.type}",
            why=f"this version doesn't read {SPEC_VARIABLE}, or something else names the device",
        )
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "torch_device": str(testing_utils.torch_device),
        "device_name": backend.get_device_info().device_name,
    }


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Record the tests of this session. Runs before any conftest, so that the installed library is tested."""
    die_with_parent(os.getppid())
    recorder = UpstreamRecorder(Path(os.environ[RECORD_VARIABLE]))
    try:
        recorder.write("session", **_prepared(os.environ[TARGET_VARIABLE]))
    except Exception as error:  # a vendor's runtime may raise anything, which is the result
        why = str(error) if isinstance(error, HwCompatError) else f"{type(error).__name__}: {error}"
        recorder.write("refused", reason=why)
        raise pytest.UsageError(why) from error
    early_config.pluginmanager.register(recorder)
