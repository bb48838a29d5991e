"""Routes of a model that QNN refuses: the next is tried, and one that doesn't help leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.backends import _exported_runnable, _qnn_runnable
from hardware.backends._qnn_runnable import QNNRunnable
from hardware.evidence.record import Stage
from hardware.export.exported import Exported
from hardware.model.model_types import ModelInput, Unsupported


class Device:
    """Refuses graphs of four rows unless their sizes are constants."""

    PROVIDER, HOST_ALLOWED, device = "QNN", frozenset[str](), "htp"

    def facts(self) -> dict[str, str]:
        return {}

    def arithmetic(self) -> str:
        return "float16"

    def compute(self, file: Path, arrays: Any, **_: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if len(arrays["input_ids"]) == 4 and file.read_text() != "held":
            raise Unsupported("QNN refuses it", error_type="unsupported_operator", stage=Stage.COMPILE)
        return {"logits": np.ones(1)}, {"assigned": {}}


def inputs(rows: int, size: int = 2) -> dict[str, Any]:
    ids = np.ones((rows, 5), np.int64)
    return {"input_ids": ids, "attention_mask": ids, "image_grid_thw": np.array([[1, size, size]])}


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each export so far was asked to hold numbers; `[True]` in advance makes those wrong."""
    asked: list[bool] = []

    def export(_: Any, given: Any, *, hold: bool) -> Exported:
        asked.append(hold)
        if hold and asked[0]:
            raise Unsupported("other numbers", error_type="conversion_wrong", stage=Stage.CONVERT)
        folder = tmp_path / str(len(asked))
        folder.mkdir()
        (folder / "model.onnx").write_text("held" if hold else "plain")
        return Exported(folder=folder, method="torchscript", held="image_grid_thw" if hold else "", static=True)

    monkeypatch.setattr(_qnn_runnable, "export_onnx", export)
    monkeypatch.setattr(_qnn_runnable, "rewrite", lambda *_: {})
    for module in (_qnn_runnable, _exported_runnable):
        monkeypatch.setattr(module, "with_positions", lambda _, given: given)
    return asked


def runnable() -> QNNRunnable:
    subject = ModelInput(model=object(), task="other", identity="a model")
    return QNNRunnable(Device(), subject, inputs(2), "float32")


def test_a_route_that_does_not_help_leaves_what_ran_before(exports: list[bool]) -> None:
    exports.append(True)
    model = runnable()
    before = model.conditions
    with pytest.raises(Unsupported, match="QNN refuses it"):
        model(**inputs(4))
    assert model(**inputs(2))
    assert model.conditions == before
    assert "held" not in before


def test_numbers_become_constants_for_shapes_that_are_refused_and_each_has_its_own(exports: list[bool]) -> None:
    model = runnable()
    assert model(**inputs(4))
    assert model.conditions["held"] == "image_grid_thw"
    made = len(exports)
    assert model(**inputs(4))
    assert len(exports) == made, "the same numbers"
    assert model(**inputs(4, size=4))
    assert len(exports) == made + 1, "a graph for other numbers"
