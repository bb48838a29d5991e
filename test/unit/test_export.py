"""Exports that don't work are refused at the stage at which they failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hardware import export
from hardware.backends._torch import without_cache
from hardware.backends.base import ModelSubject, Unsupported
from hardware.evidence.record import Stage

INPUTS = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}


def subject() -> ModelSubject:
    import torch

    return ModelSubject(model=torch.nn.Linear(3, 3), task="none", identity="0")


def fail(*_: object) -> Any:
    raise RuntimeError("no such operator")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that works; what it made is never opened."""
    monkeypatch.setattr(export, "_with_exporter", lambda subject, folder: None)
    monkeypatch.setattr(export, "_torch_outputs", lambda subject, example: {"out": np.ones((2, 3))})


def test_where_neither_way_works_both_reasons_are_told_at_the_stage_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_torch_outputs", lambda subject, example: {})
    monkeypatch.setattr(export, "_with_exporter", fail)
    monkeypatch.setattr(export, "_with_convert_model", fail)
    with pytest.raises(Unsupported, match=r"optimum-intel: .*no such operator.*convert_model: .*no such") as caught:
        export.export_openvino(subject(), INPUTS, fail)
    assert (caught.value.error_type, caught.value.stage) == ("export_failed", Stage.EXPORT)


@pytest.mark.usefixtures("exported")
def test_other_numbers_than_torch_are_a_wrong_conversion() -> None:
    with pytest.raises(Unsupported, match="other numbers than torch") as caught:
        export.export_openvino(subject(), INPUTS, lambda made: lambda inputs: {"out": np.zeros((2, 3))})
    assert (caught.value.error_type, caught.value.stage) == ("conversion_wrong", Stage.CONVERT)


@pytest.mark.usefixtures("exported")
def test_an_export_that_does_not_run_failed_at_converting() -> None:
    with pytest.raises(Unsupported, match="no such operator") as caught:
        export.export_openvino(subject(), INPUTS, lambda made: fail)
    assert (caught.value.error_type, caught.value.stage) == ("export_failed", Stage.CONVERT)


def test_a_pass_without_a_cache_is_asked_only_of_models_that_take_the_wish() -> None:
    import torch

    class Decoder(torch.nn.Module):
        def forward(self, x: Any, use_cache: bool = True) -> Any:
            return x

    assert without_cache(Decoder()) == {"use_cache": False}
    assert without_cache(torch.nn.Linear(1, 1)) == {}
