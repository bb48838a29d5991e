"""What holds for every test: nothing leaves this machine, and nothing is written outside the test's own folder."""

from __future__ import annotations

import functools
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

# The product is imported in functions: the process that only starts the watch doesn't need it.
pytest_plugins = ("hardware.testing.contract.contract_options",)

collect_ignore = ["recorded/suites"]  # the product's output, compared as text; not tests of the product


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Start again under the watch of the network if that is possible, and add the options of this folder.

    This hook runs before any plugin or test imports the product, so the second start costs little.
    """
    if not is_watched() and not why_not_watched():
        _restart_watched(pluginmanager)
    parser.addoption("--update-golden", action="store_true", help="Write test/recorded/suites anew.")
    parser.addoption("--built", metavar="DIR", help="Look at the wheel and the sdist there, and build none.")
    parser.addoption("--clean-environment", metavar="DIR", help="Where make test-package installed the wheel.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that fork their process come first: a child waits forever for threads that a runtime started before."""
    items.sort(key=lambda item: item.get_closest_marker("forks") is None and "fuzz" not in item.path.parts)


def pytest_collection_finish(session: pytest.Session) -> None:
    """torch starts its threads for gradients once, with the first: the simulated device has to be known by then."""
    if "torch" in sys.modules:
        from hardware.backends.factory import get_backend

        get_backend("simulated").unavailable()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


def _restart_watched(pluginmanager: pytest.PytestPluginManager) -> None:
    if capture := pluginmanager.get_plugin("capturemanager"):
        capture.stop_global_capturing()  # the new process has to print to the caller's terminal
    log = Path(tempfile.gettempdir()) / f"hwcompat-network-{uuid.uuid4().hex}.jsonl"
    own = (network_watch.__file__, str(log), sys.executable, *sys.orig_argv[1:])
    clean = {name: value for name, value in os.environ.items() if name not in QUIETING}
    os.execve(sys.executable, [sys.executable, *own], clean)


@pytest.fixture(scope="session", autouse=True)
def declared_checking_code() -> Iterator[None]:
    """Count results of this checkout although its checking code may not be declared yet: `make lint` reports that."""
    from hardware.evidence import revisions

    load = revisions.load_revisions

    @functools.cache
    def load_declared(path: Path | None = None) -> revisions.Revisions:
        with pytest.MonkeyPatch.context() as unpatched:
            unpatched.setattr(revisions, "load_revisions", load)
            known, here = load(), revisions.part_fingerprints()
        return replace(known, parts=tuple(declared(part, here[part.name]) for part in known.parts))

    def declared(part: revisions.RevisionPart, digest: str) -> revisions.RevisionPart:
        if part.declares(digest, part.revision):
            return part
        one = revisions.Fingerprint(
            fingerprint=digest, revision=part.revision, decision="same behavior", reason="tests"
        )
        return replace(part, fingerprints=(*part.fingerprints, one))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revisions, "load_revisions", load_declared)
        yield


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
def _session_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let session and module fixtures cache in a temporary folder, and give all terminals one width."""
    folder = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch:
        _use_folders(patch, folder)
        patch.setenv("COLUMNS", "100")
        yield folder


@pytest.fixture(autouse=True)
def _own_folders(_session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache and evidence folders, and remove variables that would change a result."""
    for name in [name for name in os.environ if name.startswith("HWCOMPAT_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("LOGLEVEL", raising=False)
    folder = _session_folder / uuid.uuid4().hex  # mktemp would list the folders of all tests before it
    folder.mkdir()
    _use_folders(monkeypatch, folder)


def _use_folders(patch: pytest.MonkeyPatch, folder: Path) -> None:
    from hardware.files import CACHE_VARIABLE
    from hardware.testing.pytest_plugin import EVIDENCE_VARIABLE

    patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
    patch.setenv(EVIDENCE_VARIABLE, str(folder / "evidence"))


@pytest.fixture(autouse=True)
def _no_swapping_left() -> Iterator[None]:
    """A device made in Python has modules swap their parameters; the next test may be about another device."""
    yield
    if torch := sys.modules.get("torch"):
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture
def fresh_redaction() -> Iterator[None]:
    """Redaction that reads the environment anew, before and after a test that changes it."""
    from hardware import redaction

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
