"""Where nothing on a target helps, other hardware and models are named: from rules, and only for poor cells."""

from __future__ import annotations

import pytest

from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.detection import detect
from reports.advice import with_alternatives
from reports.finding import Finding, Severity

CELL = "bert/fill-mask/webnn/float32"


def finding(error_type: str = "export_failed", **changes: object) -> Finding:
    values = {
        "hardware_type": "webnn",
        "error_type": error_type,
        "severity": Severity.ERROR,
        "message": "m",
        "component": "c",
        "timestamp": "t",
        "model_name": "bert",
        "cells": (CELL,),
    }
    return Finding(**{**values, **changes})


@pytest.mark.parametrize(
    ("one", "level", "named"),
    [
        (finding(), Level.UNSUPPORTED, True),
        (finding(), Level.HIGH, False),
        (finding("corrupt_checkpoint"), Level.UNSUPPORTED, False),
        (finding(model_name=None), Level.UNSUPPORTED, False),
        (finding(cells=("no-such-type/fill-mask/webnn/float32",)), Level.UNSUPPORTED, False),
    ],
)
def test_other_hardware_is_named_for_a_poor_cell_of_one_model(one, level, named):
    verdict = Verdict(cell=one.cells[0], level=level, basis=Basis.MEASURED, evidence_ids=("e",))
    (found,) = with_alternatives([one], [verdict], detect())
    assert any(text.startswith("Use other hardware for bert: ") for text in found.recommendations) == named
    assert len(found.remedies) == len(found.recommendations)
