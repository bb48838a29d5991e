"""The faults that were reported in libraries of models: their places in the installed one, and their proof."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
import transformers

from benchmarks.library_faults.__main__ import FROZEN, HELD_OUT, HERE, faults
from benchmarks.library_faults.planting.planted_faults import changed

pytestmark = pytest.mark.skipif(
    version("transformers") != "5.5.4", reason="the faults are places in transformers 5.5.4"
)


def test_every_fault_has_its_place_in_the_library_and_a_proof() -> None:
    proved = {json.loads(line)["name"] for line in (HERE / "proved.jsonl").read_text(encoding="utf-8").splitlines()}
    lost = []
    for fault in (one for file in (FROZEN, HELD_OUT) for one in faults(file)):
        text = (Path(transformers.__file__).parent / fault["file"]).read_text(encoding="utf-8")
        assert changed(text, fault) != text
        lost += [fault["name"]] if fault["name"] not in proved else []
    assert lost == []
