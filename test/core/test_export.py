"""Exports to OpenVINO: the first way that gives torch's numbers is taken, and every refusal is reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_exports import INPUTS, Runs

from hardware.backends.base import ModelInput, Unsupported
from hardware.evidence.record import Stage
from hardware.export import (
    Exported,
    decoding_graphs,
    export_openvino,
    openvino_export,
    optimum_exporter,
    routes,
    verify_export,
)


class Doubled(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return {"out": 2 * x}


def subject(**facts: Any) -> ModelInput:
    return ModelInput(**{"model": Doubled(), "task": "none", "identity": "0", **facts})


def raising(text: str) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise RuntimeError(text)

    return fail


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Both ways work, unless they are to fail; what they made is a file that is never read."""

    def make(method: str) -> Callable[..., Exported]:
        return lambda subject, example, folder: Exported(
            folder=folder, method=method, decodes=method == "optimum-intel" and subject.generates != "none"
        )

    def install(exporter: str = "", trace: str = "") -> None:
        failing = raising(exporter) if exporter else make("optimum-intel")
        traced = raising(trace) if trace else make("convert_model")
        monkeypatch.setattr(optimum_exporter, "with_exporter", failing)
        monkeypatch.setattr(openvino_export, "_TRACES", (("convert_model", traced),))

    monkeypatch.setattr(optimum_exporter, "limit_of", lambda subject: "")
    install()
    return install


def export(exporter: Runs | None = None, trace: Runs | None = None, **facts: Any) -> Exported:
    openers = {"optimum-intel": exporter, "convert_model": trace}
    return export_openvino(subject(**facts), INPUTS, lambda made: openers[made.method])


def test_if_no_way_works_all_reasons_are_reported_with_the_last_ones_stage(ways: Any) -> None:
    refused = "Summary:\n-- No conversion rule found for operations: aten::diff\n"
    for trace, opened, stage, error_type, says in (
        ("no such operator", Runs(2), Stage.EXPORT, "export_failed", "convert_model: RuntimeError: no such operator"),
        (refused, Runs(2), Stage.EXPORT, "unsupported_operator", "no conversion rule for aten::diff"),
        ("-- Conversion is failed for: a::b\n", Runs(2), Stage.EXPORT, "unsupported_operator", "rule fails for a::b"),
        ("", Runs(3), Stage.CONVERT, "conversion_wrong", "different numbers than torch"),
        ("", Runs(2, lambda x: False), Stage.CONVERT, "export_failed", "frozen"),
    ):
        ways("no such type", trace)
        with pytest.raises(Unsupported, match="optimum-intel: RuntimeError: no such type; convert_model: ") as caught:
            export(opened, opened)
        assert (caught.value.error_type, caught.value.stage) == (error_type, stage)
        assert says in str(caught.value)


@pytest.mark.usefixtures("ways")
def test_the_next_way_is_taken_if_the_first_is_wrong_in_any_part(monkeypatch: pytest.MonkeyPatch) -> None:
    here, reasons = (lambda x: x.shape == (2, 16)), {}
    assert export(Runs(2 * (1 + 2e-5)), Runs(3)).method == "optimum-intel", "a few roundings of float32"
    for name, exporter in (("1", Runs(3)), ("2", Runs(2, here))):
        made = export(exporter, Runs(2), identity=name)
        assert (made.method, made.static) == ("convert_model", False)
        reasons[name] = made.conditions()["why_not_exporter"]
    assert "different numbers than torch" in reasons["1"]
    assert "for other shapes" in reasons["2"]
    made = export(Runs(3), Runs(2, here), identity="3")
    assert made.conditions()["shapes"] == "static", "a trace that is right for its example alone"

    def opener(made: Exported) -> Any:
        if made.method == "optimum-intel":
            raise AttributeError("no attribute 'pad_token_id'")
        return Runs(2)

    made = export_openvino(subject(identity="4"), INPUTS, opener)
    assert made.method == "convert_model"
    assert "pad_token_id" in made.conditions()["why_not_exporter"]


@pytest.mark.usefixtures("ways")
def test_an_export_that_decodes_wrongly_decodes_another_way_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    want = Runs(2).generate(INPUTS, steps=4)
    monkeypatch.setattr(verify_export, "decoded_by_torch", lambda subject, example: (want, ""))
    monkeypatch.setattr(decoding_graphs, "write_decoding", lambda *_: None)
    made = export(Runs(2, decodes=3), Runs(2), generates="causal")
    assert (made.method, made.decodes) == ("convert_model", True)
    assert "gives different numbers" in made.why_not_exporter

    def write(subject: Any, example: Any, folder: Path, forward: Any) -> None:
        (folder / "openvino_step_model.xml").write_text("a graph")

    monkeypatch.setattr(decoding_graphs, "write_decoding", write)
    made = export(Runs(3), Runs(2, decodes=3), generates="causal", identity="1")
    assert not made.decodes
    assert "decoding with the convert_model export gives different numbers" in made.conditions()["why_no_cache"]
    assert made.no_cache_error == "conversion_wrong"
    assert not list(made.folder.glob("*step*"))


def test_a_cached_export_is_used_for_the_same_module_and_files(ways: Any) -> None:
    first = export(Runs(3), Runs(2))
    ways("", "not again")
    assert export(Runs(3)) == first
    changed = subject()
    changed.model.forward = lambda x: {"out": 5 * x}  # in memory alone
    assert export(Runs(5), model=changed.model).method == "optimum-intel"
    ways()
    first = export(Runs(3), Runs(2), identity="1")
    (first.folder / "openvino_model.bin").write_bytes(b"other weights")
    ways("", "made again")
    with pytest.raises(Unsupported, match="made again"):
        export(Runs(3), identity="1")


def test_an_edited_converter_exports_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = routes.sources_of.__wrapped__(("openvino",))
    assert before == routes.sources_of.__wrapped__(("openvino",))
    real = os.stat

    def later(path: Any, *rest: Any, **named: Any) -> Any:
        found = real(path, *rest, **named)
        edited = str(path).endswith("opset13/__init__.py")
        return SimpleNamespace(st_size=found.st_size, st_mtime_ns=found.st_mtime_ns + 1) if edited else found

    monkeypatch.setattr(os, "stat", later)
    assert routes.sources_of.__wrapped__(("openvino",)) != before


def test_a_static_model_is_traced_anew_without_asking_the_exporter_again(ways: Any) -> None:
    ways("not again")
    made = export_openvino(subject(generates="causal"), INPUTS, lambda made: Runs(2), traced_anew=True)
    assert (made.method, made.why_not_exporter, made.decodes) == ("convert_model", "", False)
