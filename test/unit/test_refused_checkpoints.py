"""A checkpoint whose files can't be run as they are: `--run` and `--check-model` refuse it with the same words."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from front_doors import invoke

from generators.recipes.derive import derive_checkpoint, open_checkpoint
from hardware.errors import ModelRefused
from hardware.testing.checkpoints import load_checkpoint


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A small causal model in one file, with a tokenizer's files of as many tokens as it has rows."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    folder = tmp_path_factory.mktemp("saved")
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "z": 95}}, "added_tokens": []}))
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def edit(folder: Path, name: str = "config.json", drop: str = "", **new: object) -> None:
    said = json.loads((folder / name).read_text())
    said.pop(drop, None)
    (folder / name).write_text(json.dumps(said | new))


def rename_weights(folder: Path, *, drop: str = "", **more: tuple[int, ...]) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = {name: one for name, one in load_file(path).items() if not drop or drop not in name}
    weights |= {name: torch.ones(shape) for name, shape in more.items()}
    save_file(weights, path, metadata={"format": "pt"})


def refusal(folder: Path) -> ModelRefused:
    """What refuses a folder, which is the same whether its numbers are read (`--run`) or not (`--check-model`)."""
    found = []
    for empty in (True, False):
        with pytest.raises(ModelRefused) as caught:
            open_checkpoint(folder, empty=empty)
        found.append((str(caught.value), caught.value.error_type))
    assert found[0] == found[1]
    assert caught.value.exit_code == 1
    return caught.value


def test_weights_of_other_sizes_than_the_configuration_are_named_with_both(folder):
    assert [open_checkpoint(folder, empty=empty).remarks for empty in (True, False)] == [(), ()]
    for setting, size, weight in (
        ("vocab_size", 100, "'lm_head.weight': (96, 32) in the file, (100, 32) by config.json (vocab_size 100)"),
        ("intermediate_size", 48, "mlp"),
        ("num_key_value_heads", 4, "k_proj"),
    ):
        before = json.loads((folder / "config.json").read_text())[setting]
        edit(folder, **{setting: size})
        error = refusal(folder)
        assert error.error_type == "config_invalid"
        assert weight in error.why
        assert "in the file" in error.why
        edit(folder, **{setting: before})
    edit(folder, num_hidden_layers=2)
    assert "model.layers.1" in refusal(folder).why


def test_a_broken_configuration_is_named_in_one_line(folder, tmp_path_factory):
    suites = tmp_path_factory.mktemp("suites")
    config = folder / "config.json"
    for data, said in (
        (b"\xff\xfe{not json", "cannot be read"),
        (b'{"model_ty', "corrupt or truncated"),
        (b"[1, 2]", "not a JSON object"),
        (b"[" * 100_000, "cannot be read"),
        (b"{}", "model_type"),
        (b'{"model_type": "../../etc"}', "isn't in transformers"),
        (100_000_000, "larger than"),
        (None, "no config.json"),
    ):
        config.unlink(missing_ok=True)
        if isinstance(data, int):  # so many bytes of nothing
            config.touch()
            os.truncate(config, data)
        elif data is not None:
            config.write_bytes(data)
        done = invoke("generate", "--model", folder, "--device", "cpu", "--output-dir", suites)
        assert (done.code, done.out, done.err[:7], done.err.count("\n")) == (4, "", "error: ", 1)
        assert said in done.err
        assert len(done.err) < 1_000
    assert list(suites.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "method", "needs"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq", "gptqmodel"),
        ({"quant_method": "awq", "bits": 4}, "awq", "gptqmodel"),
        ({"load_in_4bit": True}, "bitsandbytes", "bitsandbytes"),
        ({"quant_method": "fp8"}, "fp8", "accelerate"),
        ({"quant_method": "eetq"}, "eetq", "on a GPU"),
        ({"quant_method": "tomorrow"}, "tomorrow", "transformers can't load it"),
    ],
)
def test_quantized_weights_are_refused_with_the_method_and_what_it_needs(folder, said, method, needs):
    edit(folder, quantization_config=said)
    error = refusal(folder)
    assert f"quantized with '{method}'" in error.what
    assert needs in error.why
    assert error.error_type == "unsupported_format"


def test_quantization_is_known_by_another_file_a_part_of_the_configuration_or_the_names_of_weights(folder):
    (folder / "quantize_config.json").write_text('{"bits": 4}')
    assert "'gptq'" in refusal(folder).what
    (folder / "quantize_config.json").unlink()
    edit(folder, text_config={"quantization_config": {"quant_method": "awq"}})
    assert "'awq'" in refusal(folder).what
    edit(folder, drop="text_config")
    rename_weights(folder, drop="q_proj", **{"model.layers.0.self_attn.q_proj.qweight": (4, 32)})
    assert "quantized" in refusal(folder).why


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "rope_type"),
        ({"attn_implementation": "no_such_attention"}, "attn_implementation"),
        ({"hidden_size": "wide"}, "hidden_size"),
    ],
)
def test_a_configuration_that_makes_no_model_is_named_by_its_field(folder, settings, field):
    edit(folder, drop="rope_parameters", **settings)
    error = refusal(folder)
    assert error.error_type == "config_invalid"
    assert field in error.why
    assert field in error.fix


def test_a_token_cannot_choose_more_experts_than_there_are(folder):
    experts = {"num_local_experts": 2, "num_experts_per_tok": 4}
    edit(folder, **experts)
    error = refusal(folder)
    assert error.error_type == "config_invalid"
    assert "num_experts_per_tok 4 is more than num_local_experts 2" in error.why
    edit(folder, num_local_experts=None, num_experts_per_tok=2, ffn_config={"n_routed_experts": 2, "moe_topk": 2})
    assert open_checkpoint(folder, empty=True).remarks == ()


def test_code_of_the_folder_is_not_run_and_said(folder):
    edit(folder, auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"})
    (remark,) = open_checkpoint(folder, empty=True).remarks
    assert "the folder's own code, which isn't run" in remark


def test_weights_that_are_no_numbers_are_named(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][95, 3] = float("nan")  # of a token that may not be drawn
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelRefused, match=r"embed_tokens\.weight has 1 NaN among 3072 values"):
        open_checkpoint(folder)


def test_a_pointer_of_git_lfs_is_no_file_of_weights(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n")
    assert "git lfs pull" in refusal(folder).fix


@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3", "flex_attention"])
def test_an_attention_that_the_reference_lacks_is_replaced_and_said(folder, name):
    edit(folder, _attn_implementation=name, attn_implementation=name)
    opened = open_checkpoint(folder)
    assert opened.model.config._attn_implementation in ("sdpa", "eager")
    (remark,) = opened.remarks
    assert f"attn_implementation to '{name}'" in remark
    assert open_checkpoint(folder, empty=True).remarks == opened.remarks
    assert load_checkpoint(type(opened.model), folder).config._attn_implementation in ("sdpa", "eager")


def test_weights_that_the_class_does_not_take_are_named(folder):
    rename_weights(folder, **{"v_head.summary.weight": (1, 32), "v_head.summary.bias": (1,)})
    (remark,) = open_checkpoint(folder, empty=True).remarks
    assert "2 weight(s)" in remark
    assert "v_head.summary.bias, v_head.summary.weight" in remark
    assert open_checkpoint(folder).remarks == (remark,)


def test_tokens_beyond_the_rows_of_the_model_are_reported(folder):
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "<new>": 103}}}))
    (remark,) = open_checkpoint(folder, empty=True).remarks
    for text in ("ids up to 103", "96 rows", "resize_token_embeddings"):
        assert text in remark


def test_a_report_of_a_model_repeats_the_remarks_and_refuses_with_the_reason_of_run(
    folder, tmp_path_factory, monkeypatch
):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    rename_weights(folder, **{"v_head.summary.bias": (1,)})
    line = ("report", "--model", folder, "--device", "cpu", "--without-memory")
    done = invoke(*line)
    assert done.code == 0
    assert "note: 1 weight(s) of the checkpoint aren't used" in done.out
    edit(folder, vocab_size=100)
    done = invoke(*line)
    assert done.code == 1
    with pytest.raises(ModelRefused) as caught:
        derive_checkpoint(folder)  # what `hwcompat run` begins with, here in this process
    reason = "'lm_head.weight': (96, 32) in the file, (100, 32) by config.json (vocab_size 100)"
    assert reason in done.out
    assert reason in str(caught.value)
    assert "fault: the model" in done.out
    assert "high" not in done.out
