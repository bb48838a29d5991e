"""Target openvino without its runtime: the device that is asked for, and what optimum-intel is asked to export."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.backends._openvino_model import class_name, open_model
from hardware.backends.base import ModelInput, Unsupported
from hardware.backends.factory import get_backend
from hardware.evidence.record import Stage
from hardware.export import Exported, optimum_exporter


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An OpenVINO that sees a processor and two GPUs, and compiles nothing."""

    def refuse(*_: object) -> None:
        raise RuntimeError("Exception from src/plugins: no kernel")

    core = SimpleNamespace(
        available_devices=["CPU", "GPU.0", "GPU.1"],
        read_model=lambda file: SimpleNamespace(inputs=[], outputs=[]),
        compile_model=refuse,
    )
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: core))
    return core


def subject(model: Any = None, **facts: Any) -> ModelInput:
    return ModelInput(**{"model": model, "task": "none", "identity": "0", **facts})


@pytest.mark.usefixtures("core")
def test_a_device_is_available_if_the_runtime_sees_it() -> None:
    sees = "it sees CPU, GPU.0, GPU.1"
    reasons = {
        **dict.fromkeys(["openvino", "openvino:GPU", "openvino:GPU.1"], ""),
        "openvino:GPU.2": f"OpenVINO sees no GPU.2; {sees}",
        "openvino:NPU": f"OpenVINO sees no NPU; {sees}",
    }
    assert {text: get_backend(text).unavailable() for text in reasons} == reasons
    for choice, device in (
        ("AUTO", "AUTO:CPU,GPU.0,GPU.1"),
        ("HETERO", "HETERO:CPU,GPU.0,GPU.1"),
        ("BATCH", "BATCH:CPU"),
    ):
        backend: Any = get_backend(f"openvino:{choice}")
        assert (backend.unavailable(), backend.device) == ("", device), "a choice between all devices"
        assert backend.is_asked_device("GPU.1")
    for target, used, asked in (
        ("openvino", "CPU", True),
        ("openvino:NPU", "(NPU)", True),
        ("openvino:GPU", "GPU.0", True),
        ("openvino:GPU.1", "GPU.1", True),
        ("openvino:GPU.1", "GPU.0", False),
        ("openvino:NPU", "CPU", False),
        ("openvino:NPU", "(CPU)", False),
    ):
        backend = get_backend(target)
        assert backend.is_asked_device(used) is asked, (target, used)
    counts = {"openvino": 1, "openvino:GPU": 2, "openvino:NPU": 0}
    assert {name: get_backend(name).device_count for name in counts} == counts


@pytest.mark.usefixtures("core")
def test_a_model_that_openvino_refuses_failed_at_compiling(tmp_path: Path) -> None:
    made = Exported(folder=tmp_path, method="convert_model")
    with pytest.raises(Unsupported, match="no kernel") as caught:
        open_model(made, subject(task="fill-mask"), "NPU", {})
    assert caught.value.stage is Stage.COMPILE


def test_a_task_has_the_class_that_a_user_would_load() -> None:
    for task, encoder_decoder, name in (
        ("automatic-speech-recognition", True, "OVModelForSpeechSeq2Seq"),
        ("automatic-speech-recognition", False, "OVModelForCTC"),
        ("fill-mask", True, "OVModelForMaskedLM"),
        ("object-detection", False, ""),
    ):
        model = SimpleNamespace(config=SimpleNamespace(is_encoder_decoder=encoder_decoder))
        assert class_name(subject(model, task=task)) == name


def test_the_exporter_is_asked_for_a_task_by_its_own_name_with_a_cache_if_it_can(monkeypatch):
    for task, generates, known, name in (
        ("text-generation", "causal", ("text-generation", "text-generation-with-past"), "text-generation-with-past"),
        ("image-text-to-text", "causal", ("image-text-to-text",), "image-text-to-text"),
        ("image-text-to-text", "seq2seq", ("image-to-text", "image-to-text-with-past"), "image-to-text-with-past"),
        ("fill-mask", "none", ("fill-mask",), "fill-mask"),
        ("fill-mask", "none", (), "fill-mask"),
    ):
        monkeypatch.setattr(optimum_exporter, "_supported", lambda subject, known=known: dict.fromkeys(known))
        assert optimum_exporter.exporter_task(subject(task=task, generates=generates)) == name


def test_a_limit_of_the_exporter_counts_below_the_installed_version_and_is_lifted_for_one_export(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="5.5.4"))
    kind: Any = type("Config", (), {"MAX_TRANSFORMERS_VERSION": None})
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: {"none": kind})
    for limit, beyond in (("5.6", ""), (None, ""), ("5.0", "5.0")):
        kind.MAX_TRANSFORMERS_VERSION = limit
        assert optimum_exporter.limit_of(subject()) == beyond
    seen = []
    monkeypatch.setattr(optimum_exporter, "_export", lambda *_: seen.append(kind.MAX_TRANSFORMERS_VERSION))
    made = optimum_exporter.beyond_limit(subject(), {}, tmp_path)
    assert (seen, kind.MAX_TRANSFORMERS_VERSION) == ([None], "5.0")
    assert made.conditions()["exporter_limit"] == "transformers 5.0", "evidence names it"
    decodes = [
        optimum_exporter.beyond_limit(subject(generates=one), {}, tmp_path).decodes for one in ("none", "causal")
    ]
    assert decodes == [False, True]
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert optimum_exporter.limit_of(subject()) == "", "without a library there is no limit"


def test_the_exporter_gets_a_copy_of_the_model_with_what_loading_needs(monkeypatch, tmp_path):
    class Doubled:
        def __init__(self) -> None:
            self.weight = object()
            self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(pad_token_id=7))

        def parameters(self) -> list[Any]:
            return [self.weight]

        buffers = parameters

    asked: list[tuple[Any, ...]] = []
    library = SimpleNamespace(export_from_model=lambda model, folder, task: asked.append((model, folder, task)))
    monkeypatch.setitem(sys.modules, "optimum.exporters.openvino", library)
    monkeypatch.setattr(optimum_exporter, "_supported", lambda subject: {"none": None})
    given = Doubled()
    made = optimum_exporter.with_exporter(subject(given), {}, tmp_path)
    ((model, folder, task),) = asked
    assert (made.folder, made.decodes, folder, task) == (tmp_path, False, tmp_path, "none")
    assert optimum_exporter.with_exporter(subject(given, generates="causal"), {}, tmp_path).decodes
    assert (model.config.architectures, model.config.pad_token_id) == (["Doubled"], 7)
    assert model.weight is given.weight, "the very same weights"
    assert not hasattr(given.config, "architectures"), "what an exporter changes is the copy's"
