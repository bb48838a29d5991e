"""What holds for every test: nothing leaves this machine, and nothing is written outside the test's own folder."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hardware.evidence import redaction
from hardware.paths import CACHE_VARIABLE
from hardware.testing.plugin import EVIDENCE_VARIABLE

pytest_plugins = ("hardware.testing.contract.options",)

collect_ignore = ["recorded/suites"]  # the product's output, compared as text; not tests of the product


class NetworkBlocked(AssertionError):
    """A test tried to reach beyond this machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Write test/recorded/suites anew.")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether recorded files are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


def is_loopback(host: Any) -> bool:
    """Whether a host's name or address means this machine."""
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse(host: Any) -> None:
    if not is_loopback(host):
        raise NetworkBlocked(f"a test tried to reach {host!r}")


def _guard(patch: pytest.MonkeyPatch) -> None:
    for name in ("connect", "connect_ex"):
        real = getattr(socket.socket, name)

        def connect(self: socket.socket, address: Any, _real: Any = real) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                _refuse(address[0])
            return _real(self, address)

        patch.setattr(socket.socket, name, connect)
    real_send = socket.socket.sendto

    def sendto(self: socket.socket, data: Any, *rest: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _refuse(rest[-1][0])
        return real_send(self, data, *rest)

    patch.setattr(socket.socket, "sendto", sendto)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        real = getattr(socket, name)

        def look_up(host: Any, *rest: Any, _real: Any = real, **named: Any) -> Any:
            _refuse(host)
            return _real(host, *rest, **named)

        patch.setattr(socket, name, look_up)


@pytest.fixture(scope="session", autouse=True)
def _nothing_leaves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sockets reach this machine only; what session and module fixtures cache goes to a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        _guard(patch)
        folder = tmp_path_factory.mktemp("session")
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        patch.setenv(EVIDENCE_VARIABLE, str(folder / "evidence"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
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
    told = [number for one in reports for name, number in one.user_properties if name == "fuzzed inputs"]
    if told:
        terminalreporter.write_line(f"{sum(told):,} hostile inputs were tried by {len(told)} tests")
