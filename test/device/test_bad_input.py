"""Bad input: one line that says what, why and what to do, an exit code that tells its kind, and nothing harmed."""

from __future__ import annotations

import json
import struct
from functools import partial
from pathlib import Path

import pytest
from command_line import CommandLine, together

pytestmark = pytest.mark.slow

LONG = "a" * 5_000
CONFIG = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "num_attention_heads": 2}
CONFIG |= {"num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 64}

# Words of the command, its exit code, and words that its one line of error must have.
COMMANDS = {
    "unknown model": (["--model", "brt"], 4, ["'brt'", "Did you mean 'bert'"]),
    "unknown device": (["--model", "bert", "--device", "openvnio"], 4, ["'openvnio'", "Did you mean 'openvino'"]),
    "unknown task": (["--model", "bert", "--task", "fill-msk"], 4, ["'fill-msk'", "fill-mask"]),
    "unknown precision": (["--model", "bert", "--precision", "float33"], 4, ["float33", "float32"]),
    "unknown option": (["--modle", "bert"], 4, ["--modle", "Did you mean", "--model"]),
    "no model": (["--run"], 4, ["no model was named", "--model bert"]),
    "nothing on stdin": (["--model", "-"], 4, ["standard input"]),
    "nothing selected": (["--model", "bert", "--select", "gpt2/*"], 5, ["gpt2/*", "bert/fill-mask"]),
    "everything skipped": (["--model", "bert", "--skip", "*"], 5, ["--skip *"]),
    "quotes": (["--model", "ber't\"; import os"], 4, ["is not the name of a model"]),
    "newline": (["--model", "bert\nimport os"], 4, ["bert\\nimport os", "is not the name of a model"]),
    "upwards": (["--model", "../../nowhere"], 1, ["'../../nowhere'"]),
    "long": (["--model", LONG], 4, ["aaa…", "is not the name of a model"]),
    "empty": (["--model", ""], 4, ["is not the name of a model"]),
    "device upwards": (["--model", "bert", "--device", "cpu:../../x"], 4, ["is not a target"]),
    "device long": (["--model", "bert", "--device", LONG], 4, ["unknown device", "aaa…"]),
    "negative timeout": (["--model", "bert", "--run", "--timeout", "-1"], 4, ["--timeout"]),
    "no templates": (["--model", "bert", "--template-dir", "{tmp}/nothing"], 4, ["--template-dir", "nothing"]),
    "output is a file": (["--model", "bert", "--output-dir", "{file}"], 4, ["--output-dir", "is a file"]),
    "output below a file": (
        ["--model", "bert", "--output-dir", "{file}/x"],
        4,
        ["cannot be written", "--output-dir"],
    ),
    "output below proc": (["--model", "bert", "--output-dir", "/proc/x"], 4, ["cannot be written", "--output-dir"]),
    "evidence below a file": (["--model", "bert", "--run", "--evidence", "{file}/x"], 4, ["--evidence"]),
    "evidence below proc": (["--model", "bert", "--run", "--evidence", "/proc/x"], 4, ["/proc/x", "--evidence"]),
    "reports below a file": (["--model", "bert", "--run", "--report-dir", "{file}/x"], 4, ["--report-dir"]),
    "reports below proc": (["--model", "bert", "--run", "--report-dir", "/proc/x"], 4, ["/proc/x", "--report-dir"]),
    "matrix of nothing": (
        ["--hardware-compatibility", "--evidence", "{tmp}/nothing"],
        4,
        ["is no folder of evidence"],
    ),
}


def test_what_is_refused_and_how(command_line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("kept", encoding="utf-8")
    jobs = {}
    for number, (name, (words, _, _)) in enumerate(COMMANDS.items()):
        filled = [word.replace("{file}", str(file)).replace("{tmp}", str(tmp_path)) for word in words]
        jobs[name] = partial(command_line.run, tmp_path / str(number), *filled)
    for name, ran in together(jobs).items():
        asked, code, words = COMMANDS[name]
        assert (name, ran.code) == (name, code), ran.err
        assert [word for word in words if word not in ran.error] == [], name
        assert len(ran.error) < 1_000
        assert ran.out == ""
        assert "passed" not in ran.err
        assert not list(ran.folder.glob("evidence/*")), name
        assert "--run" in asked or not list(ran.folder.rglob("test_*.py")), name
    assert file.read_text(encoding="utf-8") == "kept"


def test_null_bytes_and_bytes_that_are_no_text_on_stdin(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", "-", stdin="bert\0; import os\n")
    assert ran.code == 4
    assert "\\x00" in ran.error
    assert "\0" not in ran.err


def _safetensors(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _checkpoint(folder: Path, config: bytes | None, **files: bytes) -> None:
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_bytes(config)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)


FAULTS = {
    "corrupt": ["config.json", "cannot be read"],
    "truncated": ["config.json", "corrupt or truncated"],
    "list": ["config.json", "no JSON object"],
    "deep": ["config.json", "cannot be read"],
    "untyped": ["model_type"],
    "unknown": ["'../../etc'", "is not a model type"],
    "garbage": ["config.json", "larger than"],
    "directory": ["no config.json"],
    "nothing": ["no config.json"],
    "pickle": ["refused", "pickle", "safe_serialization"],
    "short": ["cannot be loaded", "SafetensorError"],
    "lying": ["cannot be loaded", "SafetensorError"],
}
"""What is wrong with a folder that is named as a model, and words that its one line of error must have."""


def test_a_broken_checkpoint_is_named_with_its_fault(command_line: CommandLine, tmp_path: Path) -> None:
    top = tmp_path / "checkpoints"
    good = json.dumps(CONFIG).encode()
    lying = {"embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [64, 32], "data_offsets": [0, 2**40]}}
    _checkpoint(top / "corrupt", b"\xff\xfe{not json")
    _checkpoint(top / "truncated", good[:40])
    _checkpoint(top / "list", b"[1, 2]")
    _checkpoint(top / "deep", b"[" * 100_000)
    _checkpoint(top / "untyped", b"{}")
    _checkpoint(top / "unknown", b'{"model_type": "../../etc"}')
    for name in ("garbage", "directory", "nothing"):
        _checkpoint(top / name, None)
    with (top / "garbage" / "config.json").open("wb") as file:
        file.truncate(100_000_000)
    (top / "directory" / "config.json").mkdir()
    _checkpoint(top / "pickle", good, pytorch_model__bin=b"cos\nsystem\n(S'touch ran'\ntR.")
    _checkpoint(top / "short", good, model__safetensors=struct.pack("<Q", 2**62))
    _checkpoint(top / "lying", good, model__safetensors=_safetensors(lying, b"\0" * 100))
    found = together(
        {
            name: partial(command_line.run, tmp_path / "ran" / name, "--model", top / name, "--device", "cpu")
            for name in FAULTS
        }
    )
    for name, ran in found.items():
        assert (name, ran.code) == (name, 1 if name in ("short", "lying") else 4), ran.err
        assert [word for word in FAULTS[name] if word not in ran.error] == [], name
        assert len(ran.error) < 1_000
        assert not list(ran.folder.rglob("test_*.py")), name


def test_a_broken_line_of_evidence_costs_no_other(command_line: CommandLine, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    end = {"kind": "end", "schema_version": 1, "run_id": "r", "ended_at": "", "reason": "finished", "counts": {}}
    text = json.dumps(end) + "\n" + '{"kind": "check", "run_id": '
    (evidence / "r-1.jsonl").write_text(text, encoding="utf-8")
    ran = command_line.run(tmp_path, "--hardware-compatibility")
    assert ran.code == 0, ran.err
    assert "bert/fill-mask/float32" in ran.out
    assert (evidence / "r-1.jsonl").read_text(encoding="utf-8") == text
