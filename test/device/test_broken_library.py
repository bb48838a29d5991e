"""Faults that reviewers got past the suites by breaking the library: each fails now, by the check that is for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine

from hardware.evidence.record import Outcome

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).with_name("broken_library")
CAUGHT = {
    "bert/fill-mask": "backward",
    "clip/zero-shot-image-classification": "matches_reference",
    "detr/object-detection": "matches_reference",
    "electra/fill-mask": "matches_recorded",
    "encodec/feature-extraction": "matches_reference",
    "gpt2/text-generation": "cache_matches",
    "lightglue/keypoint-matching": "matches_reference",
    "siglip2/zero-shot-image-classification": "matches_reference",
}
"""Each cell that is broken, and a check that has to see it."""


def test_a_fault_that_was_green_once_is_seen(command_line: CommandLine, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (FOLDER, REPOSITORY)))
    models = [word for cell in CAUGHT for word in ("--model", cell.split("/")[0])]
    ran = command_line.run(tmp_path, *models, "--device", "cpu", "--run", env={"PYTHONPATH": path})
    for cell, check in CAUGHT.items():
        lines = ran.lines(f"{cell}/cpu/float32")
        assert (cell, lines[check].outcome) == (cell, Outcome.FAILED), lines[check].error_message
        assert lines["builds"].outcome is Outcome.PASSED
        assert ran.verdict(f"{cell}/cpu/float32") in ("unsupported", "low")
