"""`hwcompat diagnose FILE|-`: diagnose a pasted traceback or log, offline and without importing what it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import BrokenInput, echo
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.plain_text import json_text, one_line, size_text
from hwcompat.hardware.redaction import redact

from .delivery import SUFFIXES, print_or_write
from .diagnose_text import TextDiagnosis, diagnose_text
from .document import Block, Heading, document
from .finding import ANY_TARGET, Confidence, Severity, count
from .report_reading import MOST_REMEDIES, NO_FAILURE, Reading, reading_object
from .report_request import Request

STDIN = "-"

_MOST = 4 * 2**20
_BEGINNING = 2**20


def diagnose_pasted(request: Request, source: str) -> int:
    """Print or write the diagnosis and return the exit code: 1 for findings at or above --fail-on.

    Raises `BrokenInput` for a file that can't be read or is empty, `UsageError` for another format.
    """
    form = request.format
    text = _read(source)
    if not text.strip():
        raise BrokenInput(f"{_name(source)} is empty", fix="Use a traceback or the end of a log.")
    timestamp = now()
    found = _redacted(diagnose_text(text, source=_name(source), timestamp=timestamp))
    text = diagnosis_json(found, timestamp) if form == "json" else document(diagnosis_blocks(found), form)
    print_or_write(text, request.output_dir, f"diagnosis.{SUFFIXES[form]}")
    limit = Severity(request.fail_on).rank
    return int(any(finding.severity.rank >= limit for finding in found.findings))


def _redacted(found: TextDiagnosis) -> TextDiagnosis:
    """Redact the quotes of a diagnosis. The text itself is long and not stored."""
    return replace(
        found,
        findings=tuple(
            replace(one, message=redact(one.message), traceback=redact(one.traceback)) for one in found.findings
        ),
        not_understood=tuple(redact(line) for line in found.not_understood),
    )


def _name(source: str) -> str:
    return "stdin" if source == STDIN else one_line(Path(source).name, longest=80)


def _read(source: str) -> str:
    """Read the text; of more than 4 MiB the beginning and the end, where failures are."""
    if source == STDIN:
        if sys.stdin.isatty():
            note("paste a traceback or log, then press Ctrl-D (on Windows Ctrl-Z and Enter)")
        return _decoded(_ends_of(sys.stdin.buffer))
    path = Path(source)
    if path.is_dir():
        raise BrokenInput(
            f"{echo(source)} is a folder", why="diagnose reads one file", fix="Name a file, or - for standard input."
        )
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size <= _MOST:
                return _decoded(file.read(_MOST))
            data = file.read(_BEGINNING)
            file.seek(-(_MOST - _BEGINNING), 2)
            note(f"{path.name} has {size_text(size)}: only its beginning and end ({size_text(_MOST)}) are read")
            return _decoded(data + b"\n" + file.read(_MOST - _BEGINNING))
    except OSError as error:
        raise BrokenInput(
            f"{echo(source)} can't be read",
            why=error.strerror or str(error),
            fix="Name a file, or - for standard input.",
        ) from error


def _ends_of(stream: BinaryIO) -> bytes:
    """Return a stream whole, or of more than 4 MiB the beginning and the end."""
    data = stream.read(_MOST)
    late, read = b"", len(data)
    while block := stream.read(_BEGINNING):
        read += len(block)
        late = (late + block)[_BEGINNING - _MOST :]
    if not late:
        return data
    note(f"standard input has {size_text(read)}: only its beginning and end ({size_text(_MOST)}) are read")
    return data[:_BEGINNING] + b"\n" + (data + late)[_BEGINNING - _MOST :]


def _decoded(data: bytes) -> str:
    """Decode a file in UTF-8, or in UTF-16 as PowerShell writes it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8", errors="replace")


SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("schemas") / "diagnosis.json"

_NOTHING = "No failure was found."
_NOT_UNDERSTOOD = "No known pattern matches these lines. Their findings are guesses:"
_MOST_RANKED = 3
_NO_FAILURE = "no failure"
_LEAST = 0.01
"""The smallest probability that is shown."""


def diagnosis_blocks(found: TextDiagnosis) -> Iterator[Block]:
    """Yield the findings with what to do, and the lines that weren't understood."""
    yield Heading(level=1, text=f"Diagnosis of {found.source}")
    yield _summary(found)
    for finding in found.findings:
        where = "" if finding.hardware_type == ANY_TARGET else f" on {finding.hardware_type}"
        yield Heading(level=2, text=f"{finding.severity}: {finding.error_type.replace('_', ' ')}{where}")
        yield finding.message
        yield f"Confidence: {finding.confidence}." + (f" Cells: {len(finding.cells)}." if finding.cells else "")
        if finding.recommendations:
            yield "What to do:"
            yield finding.recommendations[:MOST_REMEDIES]
        if finding.recommendations[MOST_REMEDIES:]:
            yield "More:"
            yield finding.recommendations[MOST_REMEDIES:]
    if found.reading is not None and found.reading.is_known:
        yield from _reading_blocks(found.reading, is_answer=found.is_read, has_findings=bool(found.findings))
    if found.not_understood:
        yield Heading(level=2, text="Not understood")
        yield _NOT_UNDERSTOOD
        yield list(found.not_understood)


def _reading_blocks(reading: Reading, *, is_answer: bool, has_findings: bool) -> Iterator[Block]:
    """Yield what the words say: if they are the answer, the likeliest error types and what would decide; who is at
    fault, and similar reports."""
    labels = reading.error_types.labels[:_MOST_RANKED]
    named = ((_NO_FAILURE if name == NO_FAILURE else name.replace("_", " "), share) for name, share in labels)
    ranked = [f"{name} {share:.0%}" for name, share in named if share >= _LEAST]
    faults = [(name, share) for name, share in reading.faults.labels if name != NO_FAILURE]
    yield Heading(level=2, text="By the words of the report")
    if is_answer:
        yield f"Likeliest: {', '.join(ranked)}."
    if has_findings:
        yield f"Who is probably at fault: {faults[0][0]} ({faults[0][1]:.0%})."
    if is_answer and has_findings and reading.confidence is not Confidence.HIGH:
        yield f"What would decide: {reading.question}"
    if reading.similar and has_findings:
        yield "Similar public reports, and what fixed them:"
        yield [
            f"{one.url} ({one.error_type.replace('_', ' ')}): {one.fix or 'no fix is known'}"
            for one in reading.similar
        ]


def _summary(found: TextDiagnosis) -> str:
    """Return the numbers of lines and findings, and the versions in the text."""
    counts = ", ".join(f"{number} {severity}" for severity, number in count(found.findings).items() if number)
    lines = "1 line" if found.lines == 1 else f"{found.lines:,} lines"
    head = f"{lines} read. {f'Findings: {counts}.' if counts else _NOTHING}"
    names = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return head + (f" Versions in the text: {names}." if names else "")


def diagnosis_object(found: TextDiagnosis, timestamp: str) -> dict[str, Any]:
    """Return the JSON object that `schemas/diagnosis.json` describes."""
    return {
        "schema_version": SCHEMA_VERSION,
        "timestamp": timestamp,
        "source": found.source,
        "lines": found.lines,
        "versions": dict(found.versions),
        "error_counts": count(found.findings),
        "errors": [finding.to_dict() for finding in found.findings],
        "not_understood": list(found.not_understood),
        "reading": None if found.reading is None else reading_object(found.reading),
    }


def diagnosis_json(found: TextDiagnosis, timestamp: str) -> str:
    """Return a JSON document in ASCII that ends in a newline."""
    return json_text(diagnosis_object(found, timestamp), ascii_alone=True) + "\n"
