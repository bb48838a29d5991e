"""The classifier: family, architecture, traits and task of types, folders, graph files, factories and names."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from generators.model_profile import profile_of
from generators.models import classifier
from generators.models.basic_classification import classify_or_guess
from generators.models.classifier import classify, classify_model, kind_of, main, parameters_of, size_tier
from hardware.errors import BrokenInput, ModelError, ModelMissing

ARCHITECTURES = {
    *("encoder-only", "decoder-only", "encoder-decoder", "vision", "vision-encoder-text-decoder"),
    *("speech", "multimodal", "diffusion", "time-series", "video", "unknown"),
}


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


@pytest.fixture
def cached_gpt2(empty_hub_cache: Path) -> str:
    """A Hub id of which the cache holds a config.json alone."""
    repository = empty_hub_cache / "models--acme--bert-like"
    checkpoint(repository / "snapshots" / "abc", {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    return "acme/bert-like"


def test_model_types() -> None:
    image_text = ("multimodal", "vision-encoder-text-decoder", "image-text-to-text", ())
    text = ("text_generation", "decoder-only", "text-generation")
    expected = {
        "bert": ("embedding", "encoder-only", "fill-mask", ()),
        "gpt2": (*text, ()),
        "t5": ("text_generation", "encoder-decoder", "text2text-generation", ()),
        "vit": ("vision", "vision", "image-classification", ()),
        "clip": ("multimodal", "multimodal", "zero-shot-image-classification", ()),
        "whisper": ("audio", "speech", "automatic-speech-recognition", ()),
        "segformer": ("vision", "vision", "image-segmentation", ()),
        "mobilenet_v2": ("vision", "vision", "image-classification", ()),
        "detr": ("vision", "vision", "object-detection", ()),
        "blip": image_text,
        "qwen2_vl": image_text,
        "vision-encoder-decoder": image_text,
        "siglip": ("multimodal", "multimodal", "zero-shot-image-classification", ()),
        "layoutlmv3": ("multimodal", "multimodal", "document-question-answering", ()),
        "hubert": ("audio", "speech", "automatic-speech-recognition", ()),
        "patchtst": ("other", "time-series", "time-series-classification", ()),
        "mixtral": (*text, ("mixture-of-experts",)),
        "dbrx": (*text, ("mixture-of-experts",)),
        "mamba": (*text, ("state-space",)),
        "jamba": (*text, ("hybrid", "mixture-of-experts", "state-space")),
    }
    found = {name: classify(name) for name in expected}
    assert {n: (one.family, one.architecture, one.task, one.traits) for n, one in found.items()} == expected
    assert {one.confidence for one in found.values()} == {"high"}


def test_every_type_gets_a_known_family_and_architecture() -> None:
    found = [classify(model_type) for model_type in classifier.load_catalog().model_types]
    families = {"embedding", "text_generation", "vision", "audio", "multimodal", "other"}
    assert {one.family for one in found} <= families
    assert {one.architecture for one in found} <= ARCHITECTURES


def test_a_hub_id_that_is_not_cached_is_classified_by_its_name_with_low_confidence() -> None:
    expected = {
        "facebook/wav2vec2-base-960h": "wav2vec2",
        "deberta-v3-base": "deberta-v2",
        "blip2-opt": "blip-2",
        "FacebookAI/xlm-roberta-base": "xlm-roberta",
        "meta-llama/Llama-2-7b-hf": "llama",
        "mistralai/Mixtral-8x7B-v0.1": "mixtral",
    }
    for name, model_type in expected.items():
        found = classify(name)
        assert (found.model, found.model_type, found.confidence) == (name, model_type, "low")
        assert "name" in found.source


def test_a_cached_hub_id_is_classified_by_its_config_and_misses_its_weights(cached_gpt2: str) -> None:
    found = classify(cached_gpt2)
    assert (found.model_type, found.task, found.source) == ("gpt2", "text-generation", "config.json")
    profile = profile_of(cached_gpt2)
    assert (profile.recipe.model_type, profile.cell_model) == ("gpt2", "acme--bert-like")
    assert "from config.json" in profile.missing
    assert "hf download acme/bert-like" in profile.missing


def test_a_folder_is_classified_by_its_config(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "gpt2", {"model_type": "bert", "architectures": ["BertForSequenceClassification"]})
    found = classify(str(folder))
    assert (found.model_type, found.task) == ("bert", "text-classification")
    assert (found.model_class, found.path) == ("BertForSequenceClassification", str(folder))
    folder = checkpoint(tmp_path / "x", {"model_type": "bert", "architectures": ["Mine"]}, "model.safetensors")
    assert classify(str(folder)).model_class == "BertModel"


def test_a_trait_comes_from_the_checkpoint_and_its_nested_parts_not_from_its_type(tmp_path: Path) -> None:
    for config in (
        {"model_type": "mixtral", "num_local_experts": 1},
        {"model_type": "dbrx", "ffn_config": {"moe_num_experts": 1}},
    ):
        assert classify(str(checkpoint(tmp_path / str(config["model_type"]), config))).traits == ()


def test_a_broken_config_is_one_line_that_says_why(tmp_path: Path) -> None:
    broken = ("", "{", '{"model_type": "be', "[]", "null", '{"model_type": 3}', '{"a": 1}', "[" * 100_000)
    for text in (*broken, '{"model_type": "bret"}'):
        folder = checkpoint(tmp_path / "x", text)
        with pytest.raises((ModelError, BrokenInput)) as caught:
            classify(str(folder))
        assert "\n" not in str(caught.value)
        assert caught.value.why or caught.value.fix
    with pytest.raises(BrokenInput, match=r"no config\.json"):
        classify(str(tmp_path))


def test_the_size_tier_is_that_of_the_parameters_in_the_files(tmp_path: Path) -> None:
    sizes = {None: "", 0: "tiny", 39 * 10**6: "tiny", 60 * 10**6: "small", 110 * 10**6: "base", 336 * 10**6: "large"}
    assert {count: size_tier(count) for count in (*sizes, 1_558 * 10**6)} == {**sizes, 1_558 * 10**6: "xl"}
    folder = checkpoint(tmp_path / "x", {"model_type": "bert"}, "model.safetensors")
    tensor = {"dtype": "F16", "shape": [10_000, 11_000], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "word.weight": tensor, "scale": {**tensor, "shape": []}})
    file = folder / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    assert parameters_of([file]) == 110_000_001
    found = classify(str(folder))
    assert (found.size_tier, found.to_dict()["size_tier"]) == ("base", "base")
    for broken in (b"", b"\xff" * 8, (5).to_bytes(8, "little") + b"[[]]]", (9).to_bytes(8, "little") + b'{"a": {}}'):
        file.write_bytes(broken)
        assert classify(str(folder)).size_tier == "", broken
    assert classify("bert").size_tier == "", "a type has models of many sizes"


def test_pickled_weights_are_refused_unless_there_are_safetensors(tmp_path: Path) -> None:
    for weights in ("pytorch_model.bin", "model.pt"):
        folder = checkpoint(tmp_path / weights, {"model_type": "bert"}, weights)
        with pytest.raises(BrokenInput, match="pickle"):
            classify(str(folder))
        checkpoint(folder, {"model_type": "bert"}, "model.safetensors")
        assert classify(str(folder)).model_type == "bert"


def test_code_in_a_checkpoint_is_named_and_not_run(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "x", {"model_type": "mine", "auto_map": {"AutoModel": "code.Model"}})
    with pytest.raises(ModelError, match="its own code, which hwcompat never runs"):
        classify(str(folder))


def test_names_that_are_no_names_are_refused_in_one_line() -> None:
    for name in (
        *("", "a'b", 'a"b', "a\nb", "../bert", "org/../bert", "a/b/c", "bert;ls", "~nobody-at-all/x"),
        *("x" * 5000, "x" * 400, "\x00", "bert\u202e"),
        *("a b:c", "1a:b", "a:", ":b", "a:b:c", "a-b:c", "a.:b", "../a:b", "a:b;c"),
    ):
        assert kind_of(name) == ""
        with pytest.raises(ModelError) as caught:
            classify(name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_another_spelling_of_a_type_is_that_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spellings = {"BERT": "bert", "Gpt2": "gpt2", "xlm_roberta": "xlm-roberta", "DEBERTA_V2": "deberta-v2"}
    assert [name for name, model_type in spellings.items() if classify(name) != classify(model_type)] == []
    for name in ("BERT", "bert"):
        profile = profile_of(name)
        assert (profile.cell_model, profile.stands_in_for, profile.note) == ("bert", "", "")
    with pytest.raises(ModelError, match=r"Did you mean .*'bert'"):
        classify("bret")
    checkpoint(tmp_path / "BERT", {"model_type": "gpt2"})
    monkeypatch.chdir(tmp_path)  # a folder comes first
    assert classify("BERT").model_type == "gpt2"


def test_a_path_without_a_folder_is_a_missing_folder(tmp_path: Path) -> None:
    for name in ("./nope", "nope/", "/x/y", "../nope/here", "~/no-such-folder", "acme/nope/", "a/b/c"):
        with pytest.raises(ModelMissing, match=rf"the folder '{re.escape(name)}' doesn't exist"):
            classify(name)
    with pytest.raises(ModelError, match="Did you mean 'bert'"):
        classify("./bert")
    (tmp_path / "my-checkpoint").mkdir()
    with pytest.raises(ModelMissing, match="Did you mean 'my-checkpoint'"):
        classify(str(tmp_path / "my-chekpoint"))


def test_a_hub_id_that_is_not_cached_is_missing_unless_a_tiny_model_is_allowed() -> None:
    profile = profile_of("acme/bert-huge")
    assert (profile.stands_in_for, profile.cell_model) == ("", "acme--bert-huge")
    assert "from its name" in profile.missing
    assert "hf download acme/bert-huge" in profile.missing
    profile = profile_of("acme/bert-huge", allow_tiny=True)
    assert (profile.stands_in_for, profile.cell_model, profile.missing) == ("acme/bert-huge", "bert", "")
    assert "a tiny bert runs instead of 'acme/bert-huge'" in profile.note


def test_a_folder_with_a_config_only_is_missing_and_says_what_it_lacks(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "mine", {"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    profile = profile_of(str(folder))
    assert (profile.recipe.model_type, profile.cell_model) == ("bert", "mine")
    assert ".safetensors" in profile.missing
    assert "hf download" not in profile.missing


def test_what_the_caller_knows_overrides() -> None:
    assert classify_model("bert", tasks=["token-classification"]).model_class == "BertForTokenClassification"
    assert classify_model("bert", model_class="BertForQuestionAnswering").task == "question-answering"
    with pytest.raises(ModelError, match="GPT2Model"):
        classify_model("bert", model_class="GPT2Model")
    with pytest.raises(ModelError, match=r"Its tasks: .*fill-mask"):
        classify_model("bert", tasks=["image-classification"])
    assert classify_model("bert", methods=["generate"]).task == "fill-mask"
    unknown = classify_model("acme/zzz", methods=["generate"])
    assert (unknown.task, unknown.architecture, unknown.confidence) == ("text-generation", "decoder-only", "low")


def test_where_classifying_fails_the_name_is_used_and_every_reason_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModelError("models can't be looked up", why="transformers isn't installed")

    monkeypatch.setattr(classifier, "is_known", broken)
    guess, reasons = classify_or_guess("openai/whisper-tiny")
    assert guess is not None
    assert (guess.architecture, guess.confidence) == ("speech", "low")
    assert "transformers isn't installed" in reasons[0]
    nothing, reasons = classify_or_guess("acme/zzz")
    assert nothing is None
    assert len(reasons) == 2


def test_command_prints_json_and_keeps_errors_apart() -> None:
    result = CliRunner().invoke(main, ["bert", "bret", "clip", "--json"], standalone_mode=False)
    assert result.return_value == 4
    assert [one["model"] for one in json.loads(result.stdout)["models"]] == ["bert", "clip"]
    assert "Did you mean" in result.stderr
    keys = {"model", "model_type", "family", "architecture", "traits", "task", "confidence", "source"}
    assert keys <= set(json.loads(result.stdout)["models"][0])
    strange = CliRunner().invoke(main, ["a\n::error::b\x1b", "bert"], standalone_mode=False)
    assert "\n::" not in strange.stderr
    assert "\x1b" not in strange.output


def test_a_factory_is_known_by_its_name_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_module.py").write_text("raise SystemExit('it was run')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = classify("loud_module:make")
    assert (found.task, found.family, found.architecture) == ("module-forward", "other", "unknown")
    assert (found.confidence, "wasn't run" in found.source) == ("low", True)
    assert "loud_module" not in sys.modules


def test_a_graph_file_is_known_by_its_ending_and_has_to_be_there(tmp_path: Path) -> None:
    for name in ("net.onnx", "NET.ONNX", "net.xml"):
        (tmp_path / name).write_bytes(b"\x08\x09")  # no more than the beginning is read
        found = classify(str(tmp_path / name))
        assert (found.task, found.model_type, found.confidence) == ("graph-forward", "unknown", "low")
    with pytest.raises(ModelError, match="doesn't exist"):
        classify(str(tmp_path / "gone.onnx"))
    (tmp_path / "empty.xml").touch()
    with pytest.raises(BrokenInput, match="is empty"):
        classify(str(tmp_path / "empty.xml"))
    (tmp_path / "mine.onnx").mkdir()  # a folder of that name is a checkpoint
    assert kind_of(str(tmp_path / "mine.onnx")) == ""
    with pytest.raises(BrokenInput, match="it is empty"):
        classify(str(tmp_path / "mine.onnx"))
