"""Changes under which a model is tried: how they are read, and what each does to a model."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from generators.run import run_job
from hardware.applied_fix import KNOWN, VARIABLE, AppliedFix
from hardware.backends import _torch
from hardware.backends.base import Generation
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.export.openvino_export import changed_ways
from hardware.testing.changed_model import RowByRow, rows_of, with_attention
from hardware.testing.measurement import NotApplicable
from hardware.testing.runner import Limits


def test_changes_are_read_as_they_are_written_and_others_refused() -> None:
    for text in ("", *(f"{name}={value}" for name, values in KNOWN.items() for value in values)):
        assert AppliedFix.parse(text).text == text
    for wrong in ("attention=flash", "tolerance=1", "leave", "cache="):
        with pytest.raises(UsageError):
            AppliedFix.parse(wrong)
    assert not AppliedFix(cache="off").of_export.strip(";")
    assert [name for name, _ in changed_ways(AppliedFix(export="onnx"))] == ["by way of ONNX"]
    assert changed_ways(AppliedFix(cache="off")) == ()


def test_the_main_job_measures_nothing_under_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "cache=off")
    with pytest.raises(UsageError, match="don't count for a cell"):
        run_job([], detect(), evidence=tmp_path / "none", command="", machine="", limits=Limits())
    assert not (tmp_path / "none").exists()


class Attention:
    """A model with nothing but a choice of attention."""

    def __init__(self, known: Collection[str]) -> None:
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.known = known

    def modules(self) -> list[Any]:
        return [self]

    def set_attn_implementation(self, name: str) -> None:
        if name not in self.known:
            raise ValueError("no such")
        self.config._attn_implementation = name


def test_attention_that_changes_nothing_is_not_applicable() -> None:
    assert with_attention(Attention(["eager"]), "eager").config._attn_implementation == "eager"
    untouched = Attention([])
    assert with_attention(untouched, "") is untouched
    for model, name in ((Attention(["sdpa"]), "sdpa"), (Attention([]), "eager"), (object(), "eager")):
        with pytest.raises(NotApplicable):
            with_attention(model, name)


class Doubling:
    can = frozenset({"backward", "save"})
    gives_all = True
    on_host = False
    conditions = MappingProxyType({})
    actual_dtype = "float32"

    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        assert inputs["x"].shape[0] == 1
        return {"y": 2 * inputs["x"]}

    def watched(self, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        return self(**inputs), {"aten.mul": 1}

    def generate(self, inputs: dict[str, np.ndarray], *, steps: int) -> Generation:
        tokens = np.repeat(inputs["x"][:, :1], steps, axis=1)
        return Generation(tokens=tokens, logits=2.0 * tokens, start=inputs["x"], used_cache=bool(tokens[0, 0]))


def test_one_row_at_a_time_gives_the_whole_batch() -> None:
    batch = {"x": np.arange(6.0).reshape(3, 2)}
    rows = RowByRow(Doubling())
    assert np.array_equal(rows(**batch)["y"], 2 * batch["x"])
    assert rows.can == {"save"}
    outputs, left_to_host = rows.watched(batch)
    assert np.array_equal(outputs["y"], 2 * batch["x"])
    assert left_to_host == {"aten.mul": 3}
    generated = rows.generate(batch, steps=2)
    assert np.array_equal(generated.tokens, np.repeat(batch["x"][:, :1], 2, axis=1))
    assert np.array_equal(generated.logits, 2 * generated.tokens)
    assert np.array_equal(generated.start, batch["x"])
    assert not generated.used_cache, "the first row used none"
    with pytest.raises(NotApplicable):
        list(rows_of({"x": np.zeros((3, 2)), "patches": np.zeros((7, 2))}))


def test_decoding_has_no_cache_if_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch, "greedy", lambda *_, use_cache, **__: use_cache)
    runnable = object.__new__(_torch.TorchRunnable)
    runnable.model = None
    monkeypatch.setattr(runnable, "_tensors", dict, raising=False)
    for changes, cached in (("", True), ("cache=off", False)):
        monkeypatch.setenv(VARIABLE, changes)
        assert runnable.generate({}, steps=1) is cached
