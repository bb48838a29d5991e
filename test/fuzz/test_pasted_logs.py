"""Logs that anybody pastes (--diagnose), and messages of failures: read in time, redacted in time, shown as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from readers import check_json, check_markdown
from watched import Sentinel, invoked, limited

from hardware.recording import without_identity
from hardware.redaction import redact
from hwcompat.plugins.triage.repro_text import plain
from reports.diagnose_command import diagnosis_blocks, diagnosis_json
from reports.diagnose_text import diagnose_text
from reports.document import document
from reports.error_patterns import error_types, identify, patterns

LOG = """Traceback (most recent call last):
  File "/home/somebody/model.py", line 3, in forward
    return torch.mm(a, b)
RuntimeError: CUDA error: no kernel image is available for execution on the device
FAILED test_a.py::test_b - RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)
E   ValueError: it broke
torch==2.1.0 transformers 4.57.6
{"kind": "check", "schema_version": 1}
"""
REPEATED = ("a", "a.", "a@", "a://", "eyJ-", "/a", "-", "(", " ", "serial ", "0f", "a::", "a_", "aten::", "1.", '"a')
REPEATED += ("`", "<a", "in a ", "device ", "A", "not implemented for '", "\\a", "token= ", "cuda ", "é", "x (op) ")
REPEATED += ("E   ", "Traceback (most recent call last):\n", "::", "##", "[", "a,", "E:WWN", "secret:", "run 'aten::")


@pytest.mark.fuzz(150)
def test_a_pasted_log_is_told_as_text(fuzz: Any, sentinel: Sentinel) -> None:
    for hostile in fuzz:
        lines = LOG.splitlines(keepends=True)
        for _ in range(hostile.randint(1, 5)):
            at = hostile.randrange(len(lines))
            more = (f"{hostile.text()}\n", f"RuntimeError: {hostile.text()}\n", lines[at] + hostile.text())
            lines[at] = hostile.choice(more)
        found = diagnose_text("".join(lines), source=hostile.text(), timestamp="2026-01-01T00:00:00+00:00")
        check_markdown(document(diagnosis_blocks(found), "markdown"))
        check_json(diagnosis_json(found, "2026-01-01T00:00:00+00:00"))


@pytest.mark.fuzz(20)
def test_the_door_takes_whatever_bytes_come(fuzz: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)

    for hostile in fuzz:
        data = hostile.choice((LOG.encode(), LOG.encode("utf-16"), b"")) + hostile.text().encode(
            errors="surrogatepass"
        )
        (place / "log").write_bytes(hostile.bytes(data))
        form = hostile.choice(("markdown", "json"))
        _, out, _ = invoked("diagnose", "log", "--format", form)
        if out:
            {"markdown": check_markdown, "json": check_json}[form](out)


@pytest.mark.extended
def test_no_text_takes_long() -> None:
    """Each in a process that is ended after a while: what takes the square of a text's length takes minutes here."""

    def read(text: str) -> None:
        whole = f"Traceback (most recent call last):\n  File x\nRuntimeError: {text}\n{text}"
        for one in (text, f"x{text}@", f"{text}://{text}@"):
            assert redact(one)
            assert without_identity(one)
            assert plain(one) is not None
        diagnose_text(whole, source="log", timestamp="")
        for kind in error_types():
            identify(text, recorded=kind, log=text)

    for repeated in REPEATED:
        limited(read, repeated * (60_000 // len(repeated)), seconds=20)


@pytest.mark.fuzz(25)
def test_every_pattern_is_quick_on_whatever_begins_as_it_does(fuzz: Any) -> None:
    """The text of a pattern itself, and pieces of it over and over, are what makes a slow one slow."""
    expressions = [one for pattern in patterns() for one in pattern.match]
    sources = sorted({one.source for one in expressions})
    assert len(sources) > 100

    for hostile in fuzz:
        source = hostile.choice(sources)
        start = hostile.randrange(len(source))
        piece = source[start : start + hostile.randrange(1, 20)] or "a"
        text = (source + piece * 20_000)[:20_000]
        limited(identify, text, log=text, seconds=30)
