"""Options that decide how results are written."""

from __future__ import annotations

from hwcompat.generators.options import Options
from hwcompat.hardware.command_line import note
from hwcompat.hardware.evidence.writer import make_durable
from hwcompat.hardware.redaction import LEFT_IN, turn_off


def apply_evidence_options(asked: Options) -> None:
    """Leave names in what this process writes if `--no-redact` was given, after a note, and let each result wait for
    the disk with `--durable`."""
    if asked.no_redact:
        turn_off()
        note(f"--no-redact: {LEFT_IN} stay in evidence and reports; check them before you share them")
    if asked.durable:
        make_durable()
