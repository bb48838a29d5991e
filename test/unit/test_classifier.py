"""The classifier: family, architecture, traits and task of types, folders and names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from generators.model_profile import profile_of
from generators.models import classifier
from generators.models.classifier import classify, classify_model, classify_or_guess, main
from hardware.errors import BrokenInput, ModelError, ModelMissing


def checkpoint(folder: Path, config: object, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text, encoding="utf-8")
    for name in files:
        (folder / name).write_bytes(b"")
    return folder


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    hub = tmp_path / "hub"
    hub.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    return hub


@pytest.mark.parametrize(
    ("model_type", "family", "architecture", "task", "traits"),
    [
        ("bert", "embedding", "encoder-only", "fill-mask", ()),
        ("gpt2", "text_generation", "decoder-only", "text-generation", ()),
        ("t5", "text_generation", "encoder-decoder", "text2text-generation", ()),
        ("vit", "vision", "vision", "image-classification", ()),
        ("clip", "multimodal", "multimodal", "zero-shot-image-classification", ()),
        ("whisper", "audio", "speech", "automatic-speech-recognition", ()),
        ("segformer", "vision", "vision", "image-segmentation", ()),
        ("mobilenet_v2", "vision", "vision", "image-classification", ()),
        ("detr", "vision", "vision", "object-detection", ()),
        ("blip", "multimodal", "vision-encoder-text-decoder", "image-text-to-text", ()),
        ("qwen2_vl", "multimodal", "vision-encoder-text-decoder", "image-text-to-text", ()),
        ("vision-encoder-decoder", "multimodal", "vision-encoder-text-decoder", "image-text-to-text", ()),
        ("siglip", "multimodal", "multimodal", "zero-shot-image-classification", ()),
        ("layoutlmv3", "multimodal", "multimodal", "document-question-answering", ()),
        ("hubert", "audio", "speech", "automatic-speech-recognition", ()),
        ("patchtst", "other", "time-series", "time-series-classification", ()),
        ("mixtral", "text_generation", "decoder-only", "text-generation", ("mixture-of-experts",)),
        ("mamba", "text_generation", "decoder-only", "text-generation", ("state-space",)),
        (
            "jamba",
            "text_generation",
            "decoder-only",
            "text-generation",
            ("hybrid", "mixture-of-experts", "state-space"),
        ),
    ],
)
def test_model_types(model_type: str, family: str, architecture: str, task: str, traits: tuple[str, ...]) -> None:
    found = classify(model_type)
    assert (found.family, found.architecture, found.task, found.traits) == (family, architecture, task, traits)
    assert found.confidence == "high"


def test_every_type_gets_a_known_family_and_architecture() -> None:
    architectures = {
        *("encoder-only", "decoder-only", "encoder-decoder", "vision", "vision-encoder-text-decoder"),
        *("speech", "multimodal", "diffusion", "time-series", "video", "unknown"),
    }
    for model_type in classifier.load_catalog().model_types:
        found = classify(model_type)
        assert found.family in {"embedding", "text_generation", "vision", "audio", "multimodal", "other"}
        assert found.architecture in architectures


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("facebook/wav2vec2-base-960h", "wav2vec2"),
        ("deberta-v3-base", "deberta-v2"),
        ("blip2-opt", "blip-2"),
        ("FacebookAI/xlm-roberta-base", "xlm-roberta"),
        ("meta-llama/Llama-2-7b-hf", "llama"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral"),
    ],
)
def test_a_hub_id_that_is_not_cached_is_told_by_its_name_with_low_confidence(name: str, model_type: str) -> None:
    found = classify(name)
    assert (found.model_type, found.confidence) == (model_type, "low")
    assert found.model == name
    assert "name" in found.source


def test_a_cached_hub_id_is_told_by_its_config(empty_hub_cache: Path) -> None:
    repository = empty_hub_cache / "models--acme--bert-like"
    checkpoint(repository / "snapshots" / "abc", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    found = classify("acme/bert-like")
    assert (found.model_type, found.task, found.source) == ("gpt2", "text-generation", "config.json")


def test_a_folder_is_told_by_the_class_in_its_config(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "gpt2", {"model_type": "bert", "architectures": ["BertForSequenceClassification"]})
    found = classify(str(folder))
    assert (found.model_type, found.task) == ("bert", "text-classification")
    assert (found.model_class, found.path) == ("BertForSequenceClassification", str(folder))


def test_weights_without_a_known_class_get_the_base_class(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "x", {"model_type": "bert", "architectures": ["Mine"]}, "model.safetensors")
    assert classify(str(folder)).model_class == "BertModel"


def test_a_trait_comes_from_the_checkpoint_not_from_its_type(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "dense", {"model_type": "mixtral", "num_local_experts": 1})
    assert classify(str(folder)).traits == ()


def test_a_trait_is_found_in_a_nested_configuration(tmp_path: Path) -> None:
    assert classify("dbrx").traits == ("mixture-of-experts",)
    folder = checkpoint(tmp_path / "dense", {"model_type": "dbrx", "ffn_config": {"moe_num_experts": 1}})
    assert classify(str(folder)).traits == ()


def test_unknown_type_suggests_a_close_one() -> None:
    with pytest.raises(ModelError, match=r"Did you mean .*'bert'"):
        classify("bret")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"model_type": "be',
        "[]",
        "null",
        '{"model_type": 3}',
        '{"a": 1}',
        "[" * 100_000,
        '{"model_type": "bret"}',
    ],
)
def test_a_broken_config_is_one_line_that_says_why(tmp_path: Path, text: str) -> None:
    folder = checkpoint(tmp_path / "x", text)
    with pytest.raises((ModelError, BrokenInput)) as caught:
        classify(str(folder))
    assert "\n" not in str(caught.value)
    assert caught.value.why or caught.value.fix


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match=r"no config\.json"):
        classify(str(tmp_path))


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_refused_unless_there_are_safetensors(tmp_path: Path, weights: str) -> None:
    folder = checkpoint(tmp_path / "x", {"model_type": "bert"}, weights)
    with pytest.raises(BrokenInput, match="pickle"):
        classify(str(folder))
    checkpoint(folder, {"model_type": "bert"}, "model.safetensors")
    assert classify(str(folder)).model_type == "bert"


def test_code_in_a_checkpoint_is_named_and_not_run(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "x", {"model_type": "mine", "auto_map": {"AutoModel": "code.Model"}})
    with pytest.raises(ModelError, match="its own code, which is never run"):
        classify(str(folder))


@pytest.mark.parametrize(
    "name",
    [
        *("", "a'b", 'a"b', "a\nb", "../bert", "org/../bert", "a/b/c", "bert;ls", "~nobody-at-all/x"),
        *("x" * 5000, "x" * 400, "\x00", "bert\u202e"),
    ],
)
def test_names_that_are_no_names_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        classify(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "model_type"),
    [("BERT", "bert"), ("Gpt2", "gpt2"), ("xlm_roberta", "xlm-roberta"), ("DEBERTA_V2", "deberta-v2")],
)
def test_another_spelling_of_a_type_is_that_type(name: str, model_type: str) -> None:
    assert classify(name) == classify(model_type)


def test_a_type_in_another_spelling_stands_for_itself() -> None:
    profile = profile_of("BERT")
    assert (profile.cell_model, profile.stands_in_for, profile.note) == ("bert", "", "")


def test_a_folder_goes_before_another_spelling_of_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path / "BERT", {"model_type": "gpt2"})
    monkeypatch.chdir(tmp_path)
    assert classify("BERT").model_type == "gpt2"


@pytest.mark.parametrize("name", ["./nope", "nope/", "/x/y", "../nope/here", "~/no-such-folder", "acme/nope/"])
def test_a_path_without_a_folder_is_a_missing_folder(name: str) -> None:
    with pytest.raises(ModelMissing, match=rf"the folder '{re.escape(name)}' does not exist"):
        classify(name)


def test_a_missing_folder_that_is_called_like_a_type_offers_the_type() -> None:
    with pytest.raises(ModelError, match="Did you mean 'bert'"):
        classify("./bert")


def test_a_hub_id_that_is_not_cached_is_missing_and_says_how_to_fetch_it() -> None:
    profile = profile_of("acme/bert-huge")
    assert (profile.stands_in_for, profile.cell_model) == ("", "acme--bert-huge")
    assert "from its name alone" in profile.missing
    assert "hf download acme/bert-huge" in profile.missing


def test_a_tiny_model_of_its_type_runs_in_its_place_only_if_that_is_allowed() -> None:
    profile = profile_of("acme/bert-huge", allow_tiny=True)
    assert (profile.stands_in_for, profile.cell_model, profile.missing) == ("acme/bert-huge", "bert", "")
    assert "says nothing of 'acme/bert-huge'" in profile.note


def test_a_cached_config_without_weights_is_missing_of_the_type_that_it_names(empty_hub_cache: Path) -> None:
    repository = empty_hub_cache / "models--acme--thing"
    checkpoint(repository / "snapshots" / "abc", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    profile = profile_of("acme/thing")
    assert (profile.recipe.model_type, profile.cell_model) == ("gpt2", "acme--thing")
    assert "from its config.json" in profile.missing
    assert "hf download acme/thing" in profile.missing


def test_a_folder_with_a_config_only_is_missing_and_says_what_it_lacks(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mine", {"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    profile = profile_of(str(folder))
    assert (profile.recipe.model_type, profile.cell_model) == ("bert", "mine")
    assert ".safetensors" in profile.missing
    assert "hf download" not in profile.missing


def test_a_type_stands_for_itself() -> None:
    assert (profile_of("bert").stands_in_for, profile_of("bert").note) == ("", "")


def test_what_the_caller_knows_overrides() -> None:
    assert classify_model("bert", tasks=["token-classification"]).model_class == "BertForTokenClassification"
    assert classify_model("bert", model_class="BertForQuestionAnswering").task == "question-answering"
    with pytest.raises(ModelError, match="GPT2Model"):
        classify_model("bert", model_class="GPT2Model")
    with pytest.raises(ModelError, match=r"Its tasks: .*fill-mask"):
        classify_model("bert", tasks=["image-classification"])


def test_methods_count_only_where_nothing_else_is_known() -> None:
    assert classify_model("bert", methods=["generate"]).task == "fill-mask"
    unknown = classify_model("acme/zzz", methods=["generate"])
    assert (unknown.task, unknown.architecture, unknown.confidence) == ("text-generation", "decoder-only", "low")


def test_where_classifying_fails_the_name_is_used_and_every_reason_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModelError("no model can be looked up", why="transformers is not installed")

    monkeypatch.setattr(classifier, "is_known", broken)
    guess, reasons = classify_or_guess("openai/whisper-tiny")
    assert guess is not None
    assert (guess.architecture, guess.confidence) == ("speech", "low")
    assert "not installed" in reasons[0]
    nothing, reasons = classify_or_guess("acme/zzz")
    assert nothing is None
    assert len(reasons) == 2


def test_command_prints_json_and_keeps_errors_apart() -> None:
    result = CliRunner().invoke(main, ["bert", "bret", "clip", "--json"])
    assert result.exit_code == 4
    assert [one["model"] for one in json.loads(result.stdout)] == ["bert", "clip"]
    assert "Did you mean" in result.stderr
    strange = CliRunner().invoke(main, ["a\n::error::b\x1b", "bert"])
    assert "\n::" not in strange.stderr
    assert "\x1b" not in strange.output
    keys = {"model", "model_type", "family", "architecture", "traits", "task", "confidence", "source"}
    assert keys <= set(json.loads(result.stdout)[0])
