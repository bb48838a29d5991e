"""Exports are held against torch: the first way that proves right is taken, and every refusal is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.backends._openvino_model import class_name
from hardware.backends.base import Generation, ModelSubject, Unsupported
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

INPUTS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)}


def subject(**facts: Any) -> ModelSubject:
    """A model that doubles what it is given."""
    import torch

    class Doubled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"out": 2 * x}

    return ModelSubject(**{"model": Doubled(), "task": "none", "identity": "0", **facts})


def raising(text: str) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise RuntimeError(text)

    return fail


def trace_raising(text: str) -> tuple[str, Callable[..., Any]]:
    return "convert_model", raising(text)


class Runs:
    """An opened export that multiplies by `factor`, and refuses what `fits` doesn't allow."""

    def __init__(self, factor: float, fits: Callable[[Any], bool] = lambda x: True) -> None:
        self.factor, self.fits = factor, fits

    def __call__(self, inputs: Any) -> Any:
        if not self.fits(inputs["x"]):
            raise RuntimeError("shapes are frozen")
        return {"out": self.factor * inputs["x"]}

    def generate(self, inputs: Any, *, steps: int) -> Generation:
        tokens = np.full((2, steps), int(self.factor))
        return Generation(tokens=tokens, logits=tokens[..., None] * np.arange(4.0), start=tokens[:, :0])


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways work; what they made is a file that is never read."""

    def make(method: str) -> Callable[..., Exported]:
        return lambda subject, example, folder: Exported(
            folder=folder, method=method, decodes=method == "optimum-intel" and subject.generates != "none"
        )

    monkeypatch.setattr(optimum_exporter, "with_exporter", make("optimum-intel"))
    monkeypatch.setattr(optimum_exporter, "limit_of", lambda subject: "")
    monkeypatch.setattr(openvino_export, "_TRACES", (("convert_model", make("convert_model")),))


def export(openers: dict[str, Callable[..., Any]], **facts: Any) -> Exported:
    return export_openvino(subject(**facts), INPUTS, lambda made: openers[made.method])


def test_where_neither_way_works_both_reasons_are_told_at_the_stage_export(
    ways: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimum_exporter, "with_exporter", raising("no such type"))
    monkeypatch.setattr(openvino_export, "_TRACES", (trace_raising("no such operator"),))
    with pytest.raises(Unsupported, match=r"optimum-intel: .*no such type.*convert_model: .*no such op") as caught:
        export({})
    assert (caught.value.error_type, caught.value.stage) == ("export_failed", Stage.EXPORT)


def test_what_a_converter_says_at_length_is_cut(ways: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum_exporter, "with_exporter", raising("word " * 2_000))
    monkeypatch.setattr(openvino_export, "_TRACES", (trace_raising("word " * 2_000),))
    with pytest.raises(Unsupported, match="word word") as caught:
        export({})
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Summary:\n-- No conversion rule found for operations: aten::diff\n", "no conversion rule for aten::diff"),
        ("Summary:\n-- Conversion is failed for: aten::unfold\n", "the conversion rule fails for aten::unfold"),
    ],
)
def test_an_operator_that_cannot_be_converted_is_named(
    ways: None, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(optimum_exporter, "with_exporter", raising("no such type"))
    monkeypatch.setattr(openvino_export, "_TRACES", (trace_raising(text),))
    with pytest.raises(Unsupported, match=said) as caught:
        export({})
    assert (caught.value.error_type, caught.value.stage) == ("unsupported_operator", Stage.EXPORT)


def test_other_numbers_than_torch_are_a_wrong_conversion(ways: None) -> None:
    with pytest.raises(Unsupported, match="other numbers than torch") as caught:
        export({"optimum-intel": Runs(3), "convert_model": Runs(3)})
    assert (caught.value.error_type, caught.value.stage) == ("conversion_wrong", Stage.CONVERT)


def test_an_export_may_differ_by_a_few_roundings_of_float32_and_no_more(ways: None) -> None:
    other = {"convert_model": Runs(3)}
    assert export({"optimum-intel": Runs(2 * (1 + 2e-5)), **other}).method == "optimum-intel"
    with pytest.raises(Unsupported, match="other numbers than torch"):
        export({"optimum-intel": Runs(2 * (1 + 5e-4)), **other}, identity="1")


def test_an_export_that_does_not_run_failed_at_converting(ways: None) -> None:
    broken = Runs(2, lambda x: False)
    with pytest.raises(Unsupported, match="frozen") as caught:
        export({"optimum-intel": broken, "convert_model": broken})
    assert (caught.value.error_type, caught.value.stage) == ("export_failed", Stage.CONVERT)


def test_a_class_that_cannot_open_an_export_is_a_reason_like_any_other(ways: None) -> None:
    def opener(made: Exported) -> Any:
        if made.method == "optimum-intel":
            raise AttributeError("no attribute 'pad_token_id'")
        return Runs(2)

    made = export_openvino(subject(), INPUTS, opener)
    assert made.method == "convert_model"
    assert "pad_token_id" in made.conditions()["why_not_exporter"]


def test_the_next_way_is_taken_where_the_first_gives_other_numbers(ways: None) -> None:
    made = export({"optimum-intel": Runs(3), "convert_model": Runs(2)})
    assert (made.method, made.static) == ("convert_model", False)
    assert "other numbers than torch" in made.conditions()["why_not_exporter"]


def test_an_exporter_that_is_right_for_its_example_alone_is_refused(ways: None) -> None:
    frozen = Runs(2, lambda x: x.shape == (2, 16))
    made = export({"optimum-intel": frozen, "convert_model": Runs(2)})
    assert made.method == "convert_model"
    assert "for other shapes" in made.why_not_exporter


def test_a_trace_that_is_right_for_its_example_alone_has_static_shapes(ways: None) -> None:
    made = export({"optimum-intel": Runs(3), "convert_model": Runs(2, lambda x: x.shape == (2, 16))})
    assert made.conditions()["shapes"] == "static"


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of which torch decodes token 2, four times."""
    want = Runs(2).generate(INPUTS, steps=4)
    monkeypatch.setattr(verify_export, "decoded_by_torch", lambda subject, example: (want, ""))


class DecodesWrongly(Runs):
    def generate(self, inputs: Any, *, steps: int) -> Generation:
        return Runs(3).generate(inputs, steps=steps)


@pytest.mark.usefixtures("decodes")
def test_an_exporter_whose_cache_is_wrong_is_refused(ways: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_graphs, "write_decoding", lambda *_: None)
    made = export({"optimum-intel": DecodesWrongly(2), "convert_model": Runs(2)}, generates="causal")
    assert (made.method, made.decodes) == ("convert_model", True)
    assert "decodes with other numbers than torch" in made.why_not_exporter


@pytest.mark.usefixtures("decodes")
def test_graphs_that_decode_wrongly_are_left_out_with_the_reason(ways: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(subject: Any, example: Any, folder: Path, forward: Any) -> None:
        (folder / "openvino_step_model.xml").write_text("a graph")

    monkeypatch.setattr(decoding_graphs, "write_decoding", write)
    made = export({"optimum-intel": Runs(3), "convert_model": DecodesWrongly(2)}, generates="causal")
    assert not made.decodes
    assert "decodes with other numbers" in made.conditions()["why_no_cache"]
    assert made.no_cache_error == "conversion_wrong"
    assert not list(made.folder.glob("*step*"))


def test_what_was_exported_once_is_taken_from_the_cache(ways: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export({"optimum-intel": Runs(3), "convert_model": Runs(2)})
    monkeypatch.setattr(openvino_export, "_TRACES", (trace_raising("not again"),))
    assert export({"optimum-intel": Runs(3)}) == first


def test_code_that_was_changed_in_memory_does_not_meet_an_export_from_before(ways: None) -> None:
    first = export({"optimum-intel": Runs(3), "convert_model": Runs(2)})
    changed = subject()
    changed.model.forward = lambda x: {"out": 5 * x}
    again = export({"optimum-intel": Runs(5)}, model=changed.model)
    assert (first.method, again.method) == ("convert_model", "optimum-intel")


def test_an_export_whose_files_were_changed_is_made_anew(ways: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export({"optimum-intel": Runs(3), "convert_model": Runs(2)})
    (first.folder / "openvino_model.bin").write_bytes(b"other weights")
    monkeypatch.setattr(openvino_export, "_TRACES", (trace_raising("made again"),))
    with pytest.raises(Unsupported, match="made again"):
        export({"optimum-intel": Runs(3)})


def test_a_converter_that_was_edited_where_it_is_installed_exports_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = routes.sources_of.__wrapped__(("openvino",))
    assert before == routes.sources_of.__wrapped__(("openvino",))
    real = os.stat

    def later(path: Any, *rest: Any, **named: Any) -> Any:
        told = real(path, *rest, **named)
        edited = str(path).endswith("opset13/__init__.py")
        return SimpleNamespace(st_size=told.st_size, st_mtime_ns=told.st_mtime_ns + 1) if edited else told

    monkeypatch.setattr(os, "stat", later)
    assert routes.sources_of.__wrapped__(("openvino",)) != before


def test_a_static_model_is_traced_anew_for_other_shapes_without_asking_the_exporter_again(
    ways: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimum_exporter, "with_exporter", raising("not again"))
    made = export_openvino(subject(generates="causal"), INPUTS, lambda made: Runs(2), traced_anew=True)
    assert (made.method, made.why_not_exporter, made.decodes) == ("convert_model", "", False)


@pytest.mark.parametrize(
    ("installed", "limit", "beyond"), [("5.5.4", "5.0", "5.0"), ("5.5.4", "5.6", ""), ("5.5.4", None, "")]
)
def test_only_a_limit_below_the_installed_version_is_one(
    monkeypatch: pytest.MonkeyPatch, installed: str, limit: str | None, beyond: str
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(transformers, "__version__", installed)
    kind = type("Config", (), {"MAX_TRANSFORMERS_VERSION": limit})
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: {"none": kind})
    assert optimum_exporter.limit_of(subject()) == beyond


def test_the_exporter_gets_the_model_with_what_loading_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    library = SimpleNamespace(export_from_model=lambda model, folder, task: asked.append((model, folder, task)))
    monkeypatch.setitem(sys.modules, "optimum.exporters.openvino", library)
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: {"none": None})
    given = subject()
    given.model.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(pad_token_id=7))
    made = optimum_exporter.with_exporter(given, INPUTS, tmp_path)
    ((model, folder, task),) = asked
    assert (made.folder, folder, task) == (tmp_path, tmp_path, "none")
    assert (model.config.architectures, model.config.pad_token_id) == (["Doubled"], 7)


def test_an_exporter_is_told_to_go_beyond_its_limit_for_one_export_and_evidence_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    kind = type("Config", (), {"MAX_TRANSFORMERS_VERSION": "4.0"})
    seen = []
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: {"none": kind})
    monkeypatch.setattr(optimum_exporter, "_export", lambda *_: seen.append(kind.MAX_TRANSFORMERS_VERSION))
    made = optimum_exporter.beyond_limit(subject(), INPUTS, tmp_path)
    assert seen == [None]
    assert kind.MAX_TRANSFORMERS_VERSION == "4.0"
    assert made.conditions()["exporter_limit"] == "transformers 4.0"


@pytest.mark.parametrize(
    ("task", "generates", "known", "name"),
    [
        ("text-generation", "causal", {"text-generation", "text-generation-with-past"}, "text-generation-with-past"),
        ("image-text-to-text", "causal", {"image-text-to-text"}, "image-text-to-text"),
        ("image-text-to-text", "seq2seq", {"image-to-text", "image-to-text-with-past"}, "image-to-text-with-past"),
        ("fill-mask", "none", {"fill-mask"}, "fill-mask"),
        ("fill-mask", "none", set(), "fill-mask"),
    ],
)
def test_the_exporter_is_asked_for_a_task_by_its_own_name_with_a_cache_where_it_can(
    monkeypatch: pytest.MonkeyPatch, task: str, generates: str, known: set[str], name: str
) -> None:
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: dict.fromkeys(known))
    assert optimum_exporter.exporter_task(subject(task=task, generates=generates)) == name


@pytest.mark.parametrize(
    ("task", "encoder_decoder", "name"),
    [
        ("automatic-speech-recognition", True, "OVModelForSpeechSeq2Seq"),
        ("automatic-speech-recognition", False, "OVModelForCTC"),
        ("fill-mask", True, "OVModelForMaskedLM"),
        ("object-detection", False, ""),
    ],
)
def test_a_task_leads_to_the_class_that_a_user_would_load(task: str, encoder_decoder: bool, name: str) -> None:
    config = SimpleNamespace(is_encoder_decoder=encoder_decoder)
    assert class_name(subject(task=task, model=SimpleNamespace(config=config))) == name


def test_an_export_is_held_against_inputs_without_padding():
    import torch

    class Sum(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return {"out": (input_ids * attention_mask).float().cumsum(-1)}

    subject = ModelSubject(model=Sum(), task="none", identity="")
    example = {"input_ids": np.ones((2, 6), np.int64), "attention_mask": np.tril(np.ones((2, 6), np.int64))}
    inputs, _ = verify_export.Proof.of(subject, example, "any", decodes=False).other
    assert (inputs["attention_mask"][:2] == 0).any()
    assert (inputs["attention_mask"][2:] == 1).all()
