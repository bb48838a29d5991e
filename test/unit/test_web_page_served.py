"""Pages with a real ONNX file, verdicts of their evidence, and the server of one page."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_page import DESCRIBED, RUNTIME, Lines, captured, merged, of, planned, product_model, recorded, suite_of

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Basis, Level
from hardware.evidence.latest import read_latest
from hardware.evidence.store import Evidence
from hwcompat.plugins.web_page.page_seal import known_of, sealed_page
from hwcompat.plugins.web_page.web_page_command import PageServer, serve
from reports.diagnose import diagnose
from reports.finding import Severity


def test_the_seal_describes_the_file_of_the_model() -> None:
    data, one = product_model(), planned()
    suite = replace(captured(), files=(data,))
    page = sealed_page(one, suite_of(one), suite, {}, [one.verdict], RUNTIME, "python made.py")
    own = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    assert page.sealed["files"] == [{**own, **DESCRIBED}]


def test_known_verdicts_are_one_for_each_target_with_the_prediction() -> None:
    known = {verdict.cell.split("/")[2]: verdict for verdict in known_of(planned(), recorded(), Evidence())}
    assert {"cpu", "cuda", "mps", "openvino", "webgpu", "webnn"} <= set(known)
    assert known["webgpu"] == planned().verdict
    others = known_of(planned("webnn:gpu"), recorded(), Evidence())
    assert "webnn:gpu" in {verdict.cell.split("/")[2] for verdict in others}


def test_evidence_of_a_page_is_judged(tmp_path: Path) -> None:
    evidence = read_latest(merged(tmp_path / "passed"))
    (verdict,) = judge(evidence, recorded())
    assert verdict.level is Level.UNKNOWN  # a check that couldn't run is no pass
    (finding,) = diagnose(evidence.checks)
    assert (finding.severity, finding.error_type) == (Severity.INFO, "not_measured")
    assert "a page can't run this check" in finding.message

    def failed(lines: Lines) -> None:
        of(lines, "matches_reference").update(
            outcome="failed", max_rel_error=0.5, steps=[0.5], error_type="numerical_mismatch", stage="compare"
        )
        lines[-1]["counts"] = {"passed": len(lines) - 4, "failed": 1, "not_run": 1}

    (verdict,) = judge(read_latest(merged(tmp_path / "failed", failed)), recorded())
    assert verdict.level is Level.UNSUPPORTED
    assert verdict.basis in (Basis.MEASURED, Basis.EXPIRED)


def test_the_page_is_served_on_loopback_until_it_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    got = {}

    def wait() -> None:
        address = capsys.readouterr().out.split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as answer:
            got["text"] = answer.read().decode()
        raise KeyboardInterrupt

    serve("<p>a page</p>", wait)
    assert got["text"] == "<p>a page</p>"


@pytest.fixture
def site() -> Iterator[PageServer]:
    found = PageServer(b"a page")
    yield found
    found.close()


def raw(site: PageServer, first: str, *headers: str) -> str:
    """What a request that is written by hand is answered, until the server ends the connection."""
    lines = [first, *headers, "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def status(answer: str) -> int:
    return int(answer.split()[1])


def test_it_serves_loopback_alone_with_the_headers_of_isolation(site: PageServer):
    for address in (site.address, f"{site.address}/"):
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.read() == b"a page"
            assert answer.headers["Content-Type"].startswith("text/html")
            assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert site.server.server_address[0] == "127.0.0.1"


def test_requests_without_the_address_or_by_another_name_are_refused(site: PageServer):
    host, path = f"Host: 127.0.0.1:{site.port}", f"/{site.word}"
    for other in ("/", f"{path}x", path[:-1], f"{path}/../secret", "/\u0663"):
        assert status(raw(site, f"GET {other} HTTP/1.1", host)) == 403
    assert status(raw(site, f"GET {path} HTTP/1.1", host)) == 200
    assert status(raw(site, f"POST {path} HTTP/1.1", host, "Content-Length: 0")) == 501
    names = [f"127.0.0.1:{site.port + 1}", "127.0.0.1"]  # and names that others may point at this machine
    for name in ("evil.example", "127.0.0.1.evil.example", "192.168.0.7"):
        names += [f"{name}:{site.port}", name]
    for name in names:
        answer = raw(site, f"GET {path} HTTP/1.1", f"Host: {name}")
        assert status(answer) == 403, name
        assert "a page" not in answer
    assert status(raw(site, f"GET {path} HTTP/1.0")) == 403
    assert status(raw(site, f"GET {path} HTTP/1.1", f"Host: LocalHost:{site.port}")) == 200
    address, port = site.server.server_address[:2]
    site.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((str(address), int(port)), timeout=2):
        pass


def test_a_browser_that_goes_away_is_no_traceback(capfd: pytest.CaptureFixture[str]):
    site = PageServer(b"x" * 2**25)
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
        connection.sendall(f"GET /{site.word} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        connection.recv(10)
    until = time.monotonic() + 10
    while any("process_request_thread" in one.name for one in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    site.close()
    assert capfd.readouterr().err == ""
