"""The generating command: what it plans with and without a project file, and errors that say what to do."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hardware.errors import UsageError
from hwcompat.cli.earlier_scripts import generation_main

TEXT = """\
schema_version = 1
[defaults]
targets = ["cpu", "simulated"]
[[model]]
name = "bert"
[[model]]
name = "vit"
precisions = ["bfloat16"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hwcompat.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def door(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = generation_main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def cells(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    code, out, err = door(capsys, *words, "--list")
    assert code == 0, err
    return out.split()


def test_the_file_says_which_cells_there_are(capsys, config):
    assert cells(capsys, "--config", config) == [
        "bert/fill-mask/cpu/float32",
        "bert/fill-mask/simulated/float32",
        "vit/image-classification/cpu/bfloat16",
        "vit/image-classification/simulated/bfloat16",
    ]


def test_the_command_line_beats_the_environment_beats_the_file(capsys, config, monkeypatch):
    only_bert = ("--config", config, "--model", "bert")
    monkeypatch.setenv("HWCOMPAT_DEVICE", "openvino")
    monkeypatch.setenv("HWCOMPAT_PRECISION", "float16")
    assert cells(capsys, *only_bert) == ["bert/fill-mask/openvino/float16"]
    assert cells(capsys, *only_bert, "--device", "cpu") == ["bert/fill-mask/cpu/float16"]
    assert cells(capsys, *only_bert, "--device", "cpu", "--precision", "float32") == ["bert/fill-mask/cpu/float32"]


def test_patterns_and_priorities_narrow_the_file(capsys, config):
    assert cells(capsys, "--config", config, "--select", "vit/*", "--skip", "*/cpu/*") == [
        "vit/image-classification/simulated/bfloat16"
    ]
    assert cells(capsys, "--config", config, "--architectures", "vision", "--device", "cpu") == [
        "vit/image-classification/cpu/bfloat16"
    ]
    code, _, err = door(capsys, "--config", config, "--select", "vti/*", "--list")
    assert code == 5
    assert "vti" in err


def test_a_broken_file_is_one_line_and_ends_with_a_usage_error(capsys, config):
    config.write_text('schema_version = 1\n[[model]]\nname = "bert"\ntargetz = []\n[expectd]\n')
    code, out, err = door(capsys, "--config", config, "--run")
    assert (code, out) == (4, "")
    assert err.count("\n") == 1
    assert "line 4" in err
    assert "line 5" in err
    assert door(capsys, "--config", config.with_name("none.toml"), "--run")[0] == UsageError.exit_code


def test_a_mistake_is_one_line_on_stderr_with_its_exit_code(capsys):
    for words, code, said in (
        ("", 4, "no model was named"),
        ("--modle bert", 4, "--model"),
        ("--model brt --list", 4, "Did you mean 'bert'"),
        ("--model bert --device cdua --list", 4, "Did you mean 'cuda'"),
        ("--model bert --precision float33", 4, "float33"),
        ("--model bert --precision fp16", 4, "Did you mean 'float16'?"),
        ("--model bert --device cpu --select gpt2/* --list", 5, "bert/fill-mask/cpu/float32"),
        ("--model \x1b[31m --device cpu", 4, "\\x1b[31m"),
        ("--check no-such-folder", 4, "isn't a folder of suites"),
    ):
        found, out, err = door(capsys, *words.split(" ") if words else ())
        assert (found, out) == (code, ""), words
        assert said in err
        assert err.startswith("error: ")
        assert err.endswith("\n")
        assert err[:-1].isprintable()


def test_cells_are_listed_without_writing_anything(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("bert\n\ngpt2\n"))
    devices = ("--device", "cpu", "--device", "openvino")
    assert cells(capsys, "--model", "-", *devices, "--output-dir", tmp_path / "out") == [
        "bert/fill-mask/cpu/float32",
        "bert/fill-mask/openvino/float32",
        "gpt2/text-generation/cpu/float32",
        "gpt2/text-generation/openvino/float32",
    ]
    assert not (tmp_path / "out").exists()


def test_suites_are_written_checked_and_updated(capsys, tmp_path):
    folder = tmp_path / "suites"
    code, _, err = door(capsys, "--model", "bert", "--device", "cpu", "--output-dir", folder)
    assert code == 0
    assert "hwcompat run --model bert" in err
    (suite,) = folder.glob("test_*.py")
    assert door(capsys, "--check", folder)[0] == 0
    suite.write_text(suite.read_text() + "\n# mine\n")
    code, out, _ = door(capsys, "--check", folder)
    assert code == 1
    assert out.startswith("edited")
    assert door(capsys, "--update", folder)[0] == 1
    assert "# mine" in suite.read_text()
    assert door(capsys, "--update", folder, "--force")[0] == 0
    assert "# mine" not in suite.read_text()


def test_checking_a_folder_with_the_file_sees_a_suite_that_was_never_written(capsys, config, tmp_path):
    suites = tmp_path / "suites"
    assert door(capsys, "--config", config, "--output-dir", suites)[0] == 0
    assert door(capsys, "--config", config, "--check", suites)[0] == 0
    config.write_text(
        TEXT + '[[tolerance]]\ncells = "bert/*"\nlimit = 1e-4\nreason = "ours"\n[[model]]\nname = "t5"\n'
    )
    code, out, _ = door(capsys, "--config", config, "--check", suites)
    assert code == 1
    states = dict(reversed(line.split()[:2]) for line in out.splitlines())
    assert states["test_t5_text2text_generation_cpu_float32.py"] == "new"
    assert states["test_bert_fill_mask_cpu_float32.py"] == "changed"
    assert states["test_vit_image_classification_cpu_bfloat16.py"] == "current"
    assert door(capsys, "--config", config, "--update", suites)[0] == 0
    assert door(capsys, "--config", config, "--check", suites)[0] == 0
