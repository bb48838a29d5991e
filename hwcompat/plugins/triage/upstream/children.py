"""Run the tests of one file in child processes, with a new one after a crash or a timeout.

A child without any record for the time that a test may take is ended with all its processes, and its current test is
a `timeout`. One that dies by itself leaves a `crashed`. The next child runs the remaining tests.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import BackendUnavailable, NothingMatched
from hwcompat.hardware.evidence.error_types import current_name
from hwcompat.hardware.evidence.record import Outcome
from hwcompat.hardware.process import MERGED, Child, ending_of, with_product
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.pytest_environment import REWRITERS
from hwcompat.hardware.testing.runner import terminate_interrupts

from .device_spec import SPEC_VARIABLE, spec_name, spec_text, torch_backend
from .upstream_plugin import RECORD_VARIABLE, TARGET_VARIABLE

MOST_BREAKDOWNS = 5
"""After this many crashes and timeouts in one file the device counts as lost."""

LONGEST_START_S = 300.0
"""Seconds before the tests are collected, most of it for importing torch and transformers from a cold disk."""

_MOMENT_S = 0.05
_LOG_TAIL = 6_000
_OTHERS = ("TRANSFORMERS_TEST_DEVICE", "TRANSFORMERS_TEST_BACKEND", *REWRITERS)
"""Variables that would choose another device or other tests."""


@dataclass(frozen=True, kw_only=True)
class UpstreamTest:
    """The outcome of one test; `torch_device` is the device of its module, None if unknown."""

    name: str
    outcome: Outcome
    error_type: str = ""
    message: str = ""
    traceback: str = ""
    duration_s: float = 0.0
    torch_device: str | None = None


@dataclass(kw_only=True)
class FileRun:
    """The records of all children. `tests` are in the order of the file."""

    path: Path
    names: list[str] = field(default_factory=list)
    session: Mapping[str, str] = field(default_factory=dict)
    found: dict[str, UpstreamTest] = field(default_factory=dict)
    interrupted: bool = False
    given_up: bool = False

    @property
    def tests(self) -> tuple[UpstreamTest, ...]:
        """Return every collected test; those without a record are `not_run`."""
        return tuple(self.found.get(name) or self._not_run(name) for name in self.names)

    @property
    def failures(self) -> tuple[UpstreamTest, ...]:
        """The tests that failed, in their order."""
        return tuple(test for test in self.tests if test.outcome.is_failure)

    @property
    def left(self) -> list[str]:
        """The tests without a record."""
        return [name for name in self.names if name not in self.found]

    def _not_run(self, name: str) -> UpstreamTest:
        if self.interrupted:
            kind, why = "interrupted", "the run was interrupted"
        elif self.given_up:
            kind, why = "device_lost", f"skipped after {MOST_BREAKDOWNS} tests that ended the process"
        else:
            kind, why = "not_reached", "pytest ended before it"
        return UpstreamTest(name=name, outcome=Outcome.NOT_RUN, error_type=kind, message=why)


def run_file(
    checkout: Path,
    path: Path,
    target: Target,
    *,
    timeout_s: float,
    pytest_arguments: Sequence[str] = (),
    on_test: Callable[[str], None] = lambda _name: None,
) -> FileRun:
    """Run the tests of a file of a checkout on a target; `on_test` is called with each test's name when it begins.

    Raises `BackendUnavailable` if the device can't be used or the tests would have run on another one, and
    `NothingMatched` if no test was collected.
    """
    run = FileRun(path=path)
    with tempfile.TemporaryDirectory(prefix="hwcompat-upstream-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / spec_name(target)).write_text(spec_text(target), encoding="utf-8")
        with suppress(OSError):  # without links, tests that read ./tests/fixtures report it themselves
            (folder / "tests").symlink_to(checkout / "tests", target_is_directory=True)
        breakdowns = 0
        with terminate_interrupts():
            while breakdowns < MOST_BREAKDOWNS and (run.left or not breakdowns):
                tests = [f"{path}::{name}" for name in run.left] or [str(path)]
                command = [*_command(checkout), *tests, *pytest_arguments]
                try:
                    if _Child(run, command, target, folder, timeout_s, on_test).watch():
                        break
                except KeyboardInterrupt:
                    run.interrupted = True
                    break
                breakdowns += 1
        run.given_up = breakdowns >= MOST_BREAKDOWNS
    if run.interrupted and not run.found:
        raise KeyboardInterrupt
    _check_device(run, target)
    return run


def _check_device(run: FileRun, target: Target) -> None:
    """Check that every test ran on the target; otherwise the run doesn't count."""
    wanted = torch_backend(target).DEVICE_TYPE
    named = [
        run.session.get("torch_device", "nowhere"),
        *(test.torch_device or wanted for test in run.found.values()),
    ]
    seen = {name.partition(":")[0] for name in named}
    if run.names and seen != {wanted}:
        others = ", ".join(sorted(seen - {wanted}))
        raise BackendUnavailable(
            f"transformers' tests ran on {others}, not on {wanted}",
            why="so the results don't count and are discarded",
        )


class _Child:
    """One process of pytest, from its start to its end."""

    def __init__(
        self,
        run: FileRun,
        command: Sequence[str],
        target: Target,
        folder: Path,
        timeout_s: float,
        on_test: Callable[[str], None],
    ) -> None:
        self.run, self.timeout_s, self.on_test = run, timeout_s, on_test
        self._record, self._log = folder / "record.jsonl", folder / "log.txt"
        self._record.write_bytes(b"")
        self._read = 0
        self._running = ""
        self._collected = self._over = False
        self._began = time.monotonic()
        environment = _environment(target, self._record)
        with self._log.open("wb") as log:
            self._process = Child(command, cwd=folder, environment=environment, stdout=log, stderr=MERGED)

    def watch(self) -> bool:
        """Wait for the end. Return false if the process was ended or died in a test, whose outcome is recorded
        then."""
        alive = time.monotonic()
        longest_start = max(self.timeout_s, LONGEST_START_S)
        try:
            while (status := self._process.poll()) is None:
                if self._read_records():
                    alive = time.monotonic()
                elif time.monotonic() - alive > (limit := self.timeout_s if self._collected else longest_start):
                    return self._record_breakdown(Outcome.TIMEOUT, f"no output for {limit:g} s")
                else:
                    time.sleep(_MOMENT_S)
        finally:
            self._process.end()
        self._read_records()
        if not self._over:
            return self._record_breakdown(Outcome.CRASHED, f"ended by {_status_text(status)}")
        if not self.run.names:
            raise self._nothing(self._last_log_line(), fix="Check the arguments after --.")
        return True

    def _read_records(self) -> bool:
        """Read the new records; return whether there were any."""
        with self._record.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            self._handle_record(json.loads(line))
        return bool(whole)

    def _handle_record(self, record: Mapping[str, Any]) -> None:
        match record["kind"]:
            case "session":
                self.run.session = {name: str(value) for name, value in record.items() if name != "kind"}
            case "refused":
                raise BackendUnavailable("transformers' tests were not run", why=str(record["reason"]))
            case "unreadable":
                why = str(record["reason"]).strip().rpartition("\n")[2].removeprefix("E ").strip()
                fix = "Install the tests' requirements: pip install 'hwcompat[upstream]'"
                raise NothingMatched(
                    f"{self.run.path.name} can't be collected", why=why, fix=fix if "No module named" in why else ""
                )
            case "collected":
                self._collected = True
                self.run.names = self.run.names or list(record["tests"])
            case "began":
                self._running, self._began = record["test"], time.monotonic()
                self.on_test(self._running)
            case "ended":
                self._running = ""
                facts = {name: value for name, value in record.items() if name not in ("kind", "test", "outcome")}
                outcome = Outcome(record["outcome"])
                self.run.found[record["test"]] = UpstreamTest(name=record["test"], outcome=outcome, **facts)
            case "over":
                self._over = True

    def _nothing(self, why: str, fix: str = "") -> NothingMatched:
        return NothingMatched(f"no test of {self.run.path.name} was collected", why=why, fix=fix)

    def _record_breakdown(self, outcome: Outcome, message: str) -> bool:
        if not self._running:
            place = "after its last test" if self.run.found else "before its first test"
            if not self.run.names:
                raise self._nothing(f"{message}: {self._last_log_line()}")
            self._running = next(iter(self.run.left), "")
            message = f"{message}, {place}"
        if self._running:
            self.run.found[self._running] = UpstreamTest(
                name=self._running,
                outcome=outcome,
                error_type=current_name(str(outcome)),
                message=message,
                traceback=self._tail(),
                duration_s=time.monotonic() - self._began,
            )
        return False

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]

    def _last_log_line(self) -> str:
        """Return the last line of the log that isn't empty."""
        lines = [line for line in self._tail().splitlines() if line.strip(" =")]
        return lines[-1].strip(" =")[:300] if lines else "it printed nothing"


def _command(checkout: Path) -> list[str]:
    settings = checkout / "pyproject.toml"
    where = ["-c", str(settings if settings.is_file() else os.devnull), "--rootdir", str(checkout)]
    words = ["-m", "pytest", "-p", f"{__package__}.upstream_plugin", "-p", "no:cacheprovider"]
    return [sys.executable, *words, *where]


def _environment(target: Target, record: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _OTHERS}
    return with_product(kept) | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        SPEC_VARIABLE: spec_name(target),
        RECORD_VARIABLE: str(record),
        TARGET_VARIABLE: str(target),
    }


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit code {status} before pytest ended"
    with suppress(ValueError):
        return signal.Signals(-status).name
    return ending_of(status)
