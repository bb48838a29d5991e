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


def test_a_mistake_is_one_line_on_stderr_with_its_exit_code(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    Path("a-file").write_text("kept")
    Path("empty").mkdir()
    long, cpu, run = "a" * 5_000, "--model bert --device cpu", "--model bert --device cpu --run"
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
        ("--model bert --update-expected --run", 4, "--update-expected needs --config"),
        ("--model bert --update-expected --config hwcompat.toml", 4, "No such option '--update-expected'"),
        ("--model -", 4, "standard input names no model"),
        ("--model bert\nimport", 4, "bert\\nimport"),
        ("--model bert\0", 4, "bert\\x00"),
        ("--model ../../nowhere", 1, "'../../nowhere'"),
        (f"--model {long}", 4, "aaa…aaa"),
        (f"--model bert --device {long}", 4, "aaa…aaa"),
        ("--model bert --device cpu:3", 4, "cpu doesn't take an index"),
        ("--model bert --device cpu:../../x", 4, "is not a target"),
        (f"{cpu} --skip *", 5, "--skip *"),
        (f"{run} --timeout -1", 4, "--timeout"),
        (f"{cpu} --template-dir nothing", 4, "'nothing' does not exist"),
        (f"{cpu} --output-dir a-file", 4, "is a file"),
        (f"{cpu} --output-dir a-file/x", 4, "can't be written"),
        (f"{cpu} --output-dir /proc/x", 4, "--output-dir"),
        (f"{run} --evidence a-file/x", 4, "--evidence"),
        (f"{run} --evidence /proc/x", 4, "--evidence"),
        (f"{run} --report-dir a-file/x", 4, "--report-dir"),
        (f"{run} --report-dir /proc/x", 4, "--report-dir"),
        ("--hardware-compatibility --evidence nothing", 4, "not found"),
        ("--check empty", 5, "has no suites"),
    ):
        found, out, err = door(capsys, *words.split(" ") if words else ())
        assert (found, out) == (code, ""), words
        assert said in err
        assert err.startswith("error: ")
        assert err.endswith("\n")
        assert err[:-1].isprintable()
        assert len(err) < 1_000
    assert Path("a-file").read_text() == "kept"
    assert not list(tmp_path.rglob("*.jsonl"))


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
    asked = ("--model", "bert", "--model", "vit", "--device", "cpu", "--output-dir", folder)
    code, _, err = door(capsys, *asked)
    assert code == 0
    assert "hwcompat run --model bert" in err
    (folder / "test_of_my_own.py").write_text("def test_mine():\n    pass\n")
    suite, other = (folder / f"test_{name}_cpu_float32.py" for name in ("bert_fill_mask", "vit_image_classification"))
    assert door(capsys, "--check", folder)[0] == 0
    suite.write_text(suite.read_text() + "\n# mine\n")
    gone = other.read_text().replace('CELL = "vit/', 'CELL = "vitzwei/')
    other.write_text(gone)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    code, out, _ = door(capsys, "--check", folder)
    assert code == 1
    assert [line.split()[:2] for line in out.splitlines()] == [["edited", suite.name], ["orphan", other.name]]
    assert "vitzwei" in out  # why it is an orphan
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert door(capsys, "--update", folder)[0] == 1
    assert "was edited by hand and is left alone" in door(capsys, *asked)[2]
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert door(capsys, "--update", folder, "--force")[0] == 0
    assert "# mine" not in suite.read_text()
    assert other.read_text() == gone


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
