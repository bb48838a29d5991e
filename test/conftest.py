"""What holds for every test: nothing leaves this machine, and nothing is written outside the test's own folder."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import network_watch
import pytest
from network_watch import QUIETING, Attempt, is_watched, is_watched_first, network_log, read_attempts, why_not_watched

from hardware import redaction
from hardware.evidence import revisions
from hardware.files import CACHE_VARIABLE
from hardware.testing.pytest_plugin import EVIDENCE_VARIABLE

pytest_plugins = ("hardware.testing.contract.contract_options",)

collect_ignore = ["recorded/suites"]  # the product's output, compared as text; not tests of the product


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Write test/recorded/suites anew.")
    parser.addoption("--built", metavar="DIR", help="Look at the wheel and the sdist there, and build none.")
    parser.addoption("--clean-environment", metavar="DIR", help="Where make test-package installed the wheel.")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start again under the watch of the network, with the same words, where it can be watched."""
    if is_watched() or why_not_watched():
        return
    if capture := config.pluginmanager.get_plugin("capturemanager"):
        capture.stop_global_capturing()  # what is printed from here on is for the one who called
    log = Path(tempfile.gettempdir()) / f"hwcompat-network-{uuid.uuid4().hex}.jsonl"
    own = (network_watch.__file__, str(log), sys.executable, *sys.orig_argv[1:])
    clean = {name: value for name, value in os.environ.items() if name not in QUIETING}
    os.execve(sys.executable, [sys.executable, *own], clean)


@pytest.fixture(scope="session", autouse=True)
def declared_checking_code() -> Iterator[None]:
    """Count what this checkout measures though its checking code may not be declared yet: that is for `make lint`."""
    known, here = revisions.load_revisions(), revisions.part_fingerprints()
    parts = [
        part
        if part.declares(here[part.name], part.revision)
        else replace(part, fingerprints=(*part.fingerprints, _undeclared(here[part.name], part.revision)))
        for part in known.parts
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revisions, "load_revisions", lambda path=None: replace(known, parts=tuple(parts)))
        yield


def _undeclared(fingerprint: str, revision: int) -> revisions.Fingerprint:
    return revisions.Fingerprint(fingerprint=fingerprint, revision=revision, decision="same behavior", reason="tests")


def pytest_report_header() -> str:
    """Whether the network is watched, above the tests."""
    return f"network: {why_not_watched() or 'loopback only, anything else is refused and fails the test'}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What nobody can be blamed for fails the session: a process that outlived the test that started it."""
    if not is_watched_first():
        return
    log = network_log()
    left = [one for one in read_attempts(log) if os.getpid() not in one.processes]
    log.unlink(missing_ok=True)
    if left:
        print("\nthese reached beyond this machine after their test:", *left, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass
class Network:
    """What this process and all that it started tried to reach; what a test doesn't take fails it."""

    seen: int = 0

    def take(self) -> list[Attempt]:
        """The attempts since the last call. Skips the test where nothing is watched."""
        if why := why_not_watched():
            pytest.skip(f"the network isn't watched: {why}")
        found = read_attempts(network_log(), below=os.getpid())
        new, self.seen = found[self.seen :], len(found)
        return new


@pytest.fixture(scope="session")
def all_attempts() -> Network:
    """The attempts of the whole session, those of its shared runs among them."""
    return Network()


@pytest.fixture(autouse=True)
def network(all_attempts: Network) -> Iterator[Network]:
    """Fails the test that reaches beyond this machine, by whatever it started, unless it takes the attempts."""
    yield all_attempts
    if is_watched() and (left := all_attempts.take()):
        pytest.fail("reached beyond this machine:\n  " + "\n  ".join(map(str, left)), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _session_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What session and module fixtures cache goes to a temporary folder; all terminals are as wide as where there is
    none."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("session")
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        patch.setenv(EVIDENCE_VARIABLE, str(folder / "evidence"))
        patch.setenv("COLUMNS", "100")
        yield


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and an evidence folder for each test; no variable of the user's that would change a result."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv(CACHE_VARIABLE, str(folder / "cache"))
    monkeypatch.setenv(EVIDENCE_VARIABLE, str(folder / "evidence"))
    for name in [name for name in os.environ if name.startswith("HWCOMPAT_")]:
        if name not in (CACHE_VARIABLE, EVIDENCE_VARIABLE):
            monkeypatch.delenv(name)
    monkeypatch.delenv("LOGLEVEL", raising=False)


@pytest.fixture(autouse=True)
def _no_swapping_left() -> Iterator[None]:
    """A device made in Python has modules swap their parameters; the next test may be about another device."""
    yield
    if torch := sys.modules.get("torch"):
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture
def fresh_redaction() -> Iterator[None]:
    """Redaction that reads the environment anew, before and after a test that changes it."""
    for cached in (redaction._literals, redaction._user):
        cached.cache_clear()
    yield
    for cached in (redaction._literals, redaction._user):
        cached.cache_clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many hostile inputs were tried (test/fuzz), in this process and in others that ran tests for it."""
    reports = [one for kind in ("", "error") for one in terminalreporter.stats.get(kind, ())]
    told = [
        number for one in reports for name, number in getattr(one, "user_properties", ()) if name == "fuzzed inputs"
    ]
    if told:
        terminalreporter.write_line(f"{sum(told):,} hostile inputs were tried by {len(told)} tests")
