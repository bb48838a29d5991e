"""`python -m benchmarks.fallbacks`: plant each silent fallback of plants.toml into a real run and detect it.

A plant is detected if the cell of the target isn't `high`. One that didn't take effect counts as not detected.
`--honest` runs models without plants, and every cell must show that it ran on its target.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click
from tabulate import tabulate

from generators.models.priority import types_of_priority
from hardware.backends.factory import get_backend
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.store import read_folder
from hardware.files import cache_folder
from hardware.target import Target

from .. import product

HERE = Path(__file__).parent
_LIMIT_S = 300
_HONEST = 60
"""Models of a run without plants: all of high priority, and the first ones of medium priority."""
_HEAD = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation", "linear", "convolution_overrideable")
_NORMS = ("native_layer_norm", "native_group_norm", "native_batch_norm")
_BACKWARD = (
    *("native_layer_norm_backward", "gelu_backward", "tanh_backward", "_softmax_backward_data"),
    *("embedding_dense_backward", "threshold_backward"),
)
_LEFT = {"boxed_all": ("*",), "boxed_product": _PRODUCTS, "boxed_norm": _NORMS, "boxed_backward": _BACKWARD}
_NEVER_HIGH = ("qnn", "tpu", "webgpu")
"""Targets that are emulated here, so that their cells are never `high`."""
_STUB = "cuda_management_stub"
_OF_THE_DRIVER = ("kernel_on_host", "retry_on_host", "zeros", "bfloat16_inside")
"""Plants that change the driver of the simulated device, which isn't possible on real devices."""
_STANDS_IN = {"tpu": "tpu:xla-cpu", "qnn": "qnn:emulator"}
"""The same runtime and lowering on the host."""

BY_DEVICE = frozenset({*_LEFT, _STUB})
"""Plants that are a device or a library instead of a patch."""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """An entry of plants.toml."""

    name: str
    target: str
    model: str = "bert"


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a run with a plant: the cell's level and first reason, and whether the plant took effect."""

    plant: Plant
    took_effect: bool
    level: str
    reason: str
    seconds: float

    @property
    def outcome(self) -> str:
        """The outcome as text. A plant without effect isn't detected."""
        return "caught" if self.is_caught else "NOT CAUGHT" if self.took_effect else "not planted"

    @property
    def is_caught(self) -> bool:
        """Whether the level is lower than without the plant; an emulator's is `medium` at most. Results of undeclared
        checking code detect nothing."""
        honest = ("high", "medium") if Target.parse(self.plant.target).name in _NEVER_HIGH else ("high",)
        undeclared = self.reason.startswith("modified checker")
        return self.took_effect and not undeclared and self.level not in (*honest, "no verdict")


def plants() -> list[Plant]:
    """Read all plants of plants.toml in order."""
    with (HERE / "plants.toml").open("rb") as file:
        entries = tomllib.load(file)
    return [
        Plant(name=name, target=entry["target"], model=entry.get("model", "bert")) for name, entry in entries.items()
    ]


class Bench:
    """Runs the product in child processes, with all output below one folder."""

    def __init__(self, folder: Path, device: Path) -> None:
        self.folder = folder
        self.device = device

    def run(self, plant: Plant) -> Found:
        """Run one model with the plant."""
        folder = self.folder / plant.name
        folder.mkdir()
        mark = folder / "took_effect"
        device = {"HWCOMPAT_PLANT_DEVICE": _device(plant.target)}
        environment = product.planted(self._environment(device), plant.name, mark, HERE / "planting")
        if plant.name in _LEFT:
            left = ",".join(one if one == "*" else f"aten::{one}" for one in _LEFT[plant.name])
            environment["HWCOMPAT_BOXED_LEFT"] = left
            mark.touch()  # The device itself is the plant.
        if plant.name == _STUB:
            environment["LD_LIBRARY_PATH"] = str(_stub(folder))
        started = time.perf_counter()
        command = product.command(folder, [plant.model], _device(plant.target), "--run")
        ran = product.run(command, environment, _LIMIT_S)
        (folder / "out").write_text(ran.stdout + ran.stderr, encoding="utf-8")
        verdict = product.verdict(folder) or {"level": "no verdict", "reason": ran.stderr.strip()[-200:]}
        return Found(
            plant=plant,
            took_effect=mark.exists(),
            level=verdict["level"],
            reason=verdict["reason"],
            seconds=time.perf_counter() - started,
        )

    def honest(self, target: str, models: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield each cell of a run without plants that has right numbers, with the reason why it is a false alarm, or
        an empty string. Models that a target can't run don't count."""
        folder = self.folder / f"honest-{target}"
        folder.mkdir()
        longest_s = _LIMIT_S * max(1, len(models) // 4)
        command = product.command(folder, models, target, "--run")
        ran = product.run(command, self._environment({}), longest_s)
        (folder / "out").write_text(ran.stdout + ran.stderr, encoding="utf-8")
        lines = read_folder(folder / "evidence").checks
        for cell in dict.fromkeys(line.cell_id for line in lines):
            own = {line.check_name: line for line in lines if line.cell_id == cell}
            compared = own.get("matches_reference")
            if compared is None or not (compared.outcome is Outcome.PASSED or _is_offload(compared)):
                continue
            proof = own.get("runs_natively")
            wrong = [line for line in own.values() if _is_offload(line)]
            if proof is None or proof.outcome is not Outcome.PASSED:
                wrong = [proof or compared, *wrong]
            yield cell, (wrong[0].error_message or str(wrong[0].outcome)) if wrong else ""

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        path = os.pathsep.join([str(HERE / "boxed"), str(product.ROOT), os.environ.get("PYTHONPATH", "")])
        own = {"HWCOMPAT_BOXED_LIBRARY": str(self.device), "PYTHONPATH": path}
        return product.environment(self.folder / "cache", {**own, **more})


def _device(target: str) -> str:
    """Return the device of a run: the target, or the emulator of a target that isn't available."""
    instead = _STANDS_IN.get(target)
    return target if instead is None or get_backend(target).is_available else instead


def _stub(folder: Path) -> Path:
    """Compile a stub of NVIDIA's management library and return its folder."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise click.ClickException("no C compiler is here")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "stub_nvml.c"], check=True)
    return folder


def _build_device() -> Path:
    """Build the boxed device's library if its source was changed."""
    sys.path.insert(0, str(HERE / "boxed"))
    from boxed_device import build

    source = hashlib.sha256((HERE / "boxed" / "boxed.cpp").read_bytes()).hexdigest()[:12]
    return Path(build(cache_folder("boxed_device") / source))


@click.command()
@click.option("--plant", "names", multiple=True, help="Only these; default: all.")
@click.option("--target", "targets", multiple=True, help="Only plants of these targets.")
@click.option("--on", "target", default="simulated", help="Where those of `simulated` are planted instead.")
@click.option("--honest", multiple=True, metavar="TARGET", help=f"Run {_HONEST} models there without any plant.")
@click.option("--no-plants", is_flag=True, help="Honest runs alone.")
@click.option("--page", type=click.Path(path_type=Path), help="Write what was found there, as Markdown.")
@click.option("--json", "rows", type=click.Path(path_type=Path), help="Write what came of the plants, as JSON.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder in which everything stays.")
def main(
    names: Sequence[str],
    targets: Sequence[str],
    target: str,
    honest: Sequence[str],
    no_plants: bool,
    page: Path | None,
    rows: Path | None,
    keep: Path | None,
) -> None:
    """Print a row for each plant; exit with 1 if one wasn't detected, or for a false alarm."""
    chosen = [p for p in plants() if (not names or p.name in names) and (not targets or p.target in targets)]
    if target != "simulated":
        chosen = [replace(p, target=target) if p.target == "simulated" else p for p in chosen]
        chosen = [plant for plant in chosen if plant.name not in _OF_THE_DRIVER]
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = [] if no_plants else chosen
        told_of = {plant.target for plant in chosen} | set(honest)
        bench = Bench(folder, _build_device() if "boxed" in told_of else Path("not-built"))
        found = [_told(bench.run(plant)) for plant in chosen]
        honesty = [_honest_runs(bench, target) for target in honest]
    text = _page(found, honesty)
    click.echo(text)
    if page is not None:
        page.write_text(text, encoding="utf-8")
    if rows is not None:
        rows.write_text(json.dumps([_row(one) for one in found], indent=1), encoding="utf-8")
    raise SystemExit(0 if all(one.is_caught for one in found) and not any(one.alarms for one in honesty) else 1)


def _is_offload(line: CheckLine) -> bool:
    return line.error_type == "silent_offload"


@dataclass(frozen=True, kw_only=True)
class Honesty:
    """The cells of one target without plants, and the false alarms among them, each with its reason."""

    target: str
    cells: int
    alarms: Mapping[str, str]


def _honest_runs(bench: Bench, target: str) -> Honesty:
    models = (*types_of_priority("high"), *types_of_priority("medium"))[:_HONEST]
    cells = dict(bench.honest(target, models))
    return Honesty(target=target, cells=len(cells), alarms={cell: why for cell, why in cells.items() if why})


def _page(found: Sequence[Found], honesty: Sequence[Honesty]) -> str:
    here = {one.name: one.version for one in metadata.distributions()}
    versions = ", ".join(f"{name} {here[name]}" for name in ("torch", "transformers", "openvino") if name in here)
    result = f"{sum(one.is_caught for one in found)} of {len(found)} planted fallbacks were detected."
    parts = [_HEAD.format(date=datetime.now(UTC).date(), versions=versions, result=result)]
    if found:
        rows = [tuple(_row(one).values()) for one in found]
        parts.append("## Planted fallbacks\n")
        parts.append(
            tabulate(rows, headers=("plant", "target", "result", "level", "first reason"), tablefmt="github")
        )
    if honesty:
        parts.append("\n## Runs without a fallback\n")
        honest = [(one.target, one.cells, len(one.alarms), "; ".join(one.alarms)) for one in honesty]
        total = (sum(one.cells for one in honesty), sum(len(one.alarms) for one in honesty))
        parts.append(
            f"{total[0]} runs without a planted fallback whose numbers were right, {total[1]} false alarms.\n"
        )
        parts.append(tabulate(honest, headers=("target", "runs", "false alarms", "cells"), tablefmt="github"))
    return "\n".join(parts) + "\n"


def _row(found: Found) -> dict[str, str]:
    return {
        "plant": found.plant.name,
        "target": found.plant.target,
        "outcome": found.outcome,
        "level": found.level,
        "reason": found.reason[:160],
    }


def _told(found: Found) -> Found:
    click.echo(f"{found.plant.name}: {found.level} ({found.seconds:.0f} s)", err=True)
    return found


if __name__ == "__main__":
    main()
