"""`python -m benchmarks.folders FOLDER`: build folders of 24 kinds as users have them, run each, and compare what the
product says with what a user may expect (`folders.toml`)."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hardware.command_line import run_command_line
from reports.text import markdown_table

from . import product

_SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _saved(folder: Path, name: str = "LlamaForCausalLM", **settings: Any) -> None:
    """Save a small model with random weights, larger than the library's so that faults are visible."""
    import torch
    import transformers

    torch.manual_seed(0)
    model_class = getattr(transformers, name)
    sizes = {"num_attention_heads": 4, "max_position_embeddings": 256, **_SIZES}
    model = model_class(model_class.config_class(**sizes, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.dim() > 1 else 1)
    model.save_pretrained(folder, max_shard_size="20KB" if "missing_shard" in str(folder) else "1GB")


def _save_dense(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    weights = {"linear.weight": torch.randn(16, 32), "linear.bias": torch.randn(16)}
    weights["linear.weight"] *= float("nan") if "nan" in folder.name else 1.0
    if "bin" in folder.name:
        torch.save(weights, folder / "2_Dense/pytorch_model.bin")
    else:
        save_file(weights, folder / "2_Dense/model.safetensors")


def _graph(folder: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    _write(folder / "config.json", {"model_type": "bert", "architectures": ["BertModel"], **_SIZES})
    inside = {"onnx_subfolder": "onnx/model.onnx", "onnx_capitals": "MODEL.ONNX"}.get(folder.name, "model.onnx")
    (folder / inside).parent.mkdir(exist_ok=True)
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(model, (torch.randn(1, 8),), folder / inside, dynamo=False, **names)


def build(folder: Path, expected: Mapping[str, Any]) -> list[Path]:
    """Build the folder that an entry describes, and return what a user gives to `--model`."""
    import torch
    from safetensors.torch import load_file, save_file

    kind = folder.name
    folder.mkdir(parents=True)
    if kind.startswith("onnx"):
        _graph(folder)
    elif kind.startswith("gguf"):
        (folder / "model-Q4_K_M.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        return [folder / "model-Q4_K_M.gguf" if kind == "gguf_file" else folder]
    elif kind == "trainer":
        for step in (9, 10, 20):
            _saved(folder / f"checkpoint-{step}")
    elif kind == "same_name":
        runs = [folder / run / "checkpoint-500" for run in ("a", "b")]
        for run, activation in zip(runs, ("silu", "gelu"), strict=True):
            _saved(run, hidden_act=activation, tie_word_embeddings=activation == "gelu")
        return runs
    elif "set" in expected or "files" not in expected:
        _saved(folder, expected.get("model", "LlamaForCausalLM"))
        config = json.loads((folder / "config.json").read_text())
        _write(folder / "config.json", {**config, **expected.get("set", {})})
    for name, content in expected.get("files", {}).items():
        _write(folder / name, content)
    weights = folder / "model.safetensors"
    if (folder / "2_Dense").exists():
        _save_dense(folder)
    elif kind.startswith("lora"):
        save_file({"base_model.model.q_proj.lora_A.weight": torch.randn(4, 32)}, folder / "adapter_model.safetensors")
    elif kind == "lfs_pointer":
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n")
    elif kind == "missing_shard":
        sorted(folder.glob("model-*.safetensors"))[1].unlink()
    elif kind in ("unexpected_weights", "missing_weights", "nan_weights", "pickled"):
        tensors = load_file(weights)
        tensors |= {"v_head.weight": torch.ones(4)} if kind == "unexpected_weights" else {}
        norm = tensors.pop("model.norm.weight")
        norm[3] = float("nan") if kind == "nan_weights" else 1.0
        tensors |= {} if kind == "missing_weights" else {"model.norm.weight": norm}
        if kind == "pickled":
            weights.unlink()
            torch.save(tensors, folder / "pytorch_model.bin")
        else:
            save_file(tensors, weights, metadata={"format": "pt"})
    return [folder]


def outcome(expected: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """Return what isn't as expected of a folder, empty if all is, and what the product printed."""
    place = folder / expected["name"]
    shutil.rmtree(place, ignore_errors=True)
    named = build(place / expected["name"], expected)
    words = product.command(place, [str(one) for one in named], "cpu", "--run")
    done = product.run(words, product.environment(folder / "cache"), 600.0)
    said = f"{done.stdout}{done.stderr}"
    suites = "".join(one.read_text() for one in (place / "suites").glob("test_*.py"))
    levels = Counter(word.rstrip(",") for word in said.split() if word in ("high", "low", "medium", "unsupported"))
    wrong = [f"no {one!r}" for one in expected["says"] if one.lower() not in said.lower()]
    wrong += [f"no {one!r} in the suites" for one in expected.get("suite", ()) if one not in suites]
    if expected["runs"]:
        wrong += [f"exit {done.returncode}"] if done.returncode or levels["high"] < len(named) else []
    elif done.returncode not in (1, 4) or levels:
        wrong += [f"exit {done.returncode} {dict(levels)}"]
    return ", ".join(wrong), said


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--only", default="", help="Build and run only these folders, separated by commas.")
def main(folder: Path, only: str) -> None:
    """Print what isn't as expected, folder by folder, and how many kinds are right."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["folder"]
    chosen = [one for one in listed if not only or one["name"] in only.split(",")]
    rows, wrong = [], set()
    for one in chosen:
        found, said = outcome(one, folder)
        (folder / f"{one['name']}.txt").write_text(said, encoding="utf-8")
        rows.append((one["kind"], one["name"], found or "as expected"))
        wrong |= {one["kind"]} if found else set()
        click.echo(f"{one['name']}: {found or 'as expected'}", err=True)
    kinds = {one["kind"] for one in chosen}
    right = sum(row[2] == "as expected" for row in rows)
    click.echo(f"{right} of {len(rows)} folders and {len(kinds - wrong)} of {len(kinds)} kinds are as expected.\n")
    click.echo(markdown_table(("kind", "folder", "found"), rows))


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.folders"))
