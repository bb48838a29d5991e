"""Store the results of GPU sessions, and print docs/measured/cuda.md from them."""

from __future__ import annotations

import json
import statistics
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from benchmarks.evidence_table import Gathered, gathered, keep
from generators.models.priority import types_of_priority
from hardware.evidence.record import CheckLine
from hardware.evidence.shipped_evidence import last_checks, read_shipped
from hardware.target import Target

from .stages import PRECISIONS

CELLS, SESSION = Path("docs/evidence/cuda.jsonl.gz"), Path("docs/evidence/cuda-session.json")
_PACKAGES = ("torch", "transformers", "numpy", "nvidia-cublas", "nvidia-cudnn-cu13")
_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")

_CAUSES = Path(__file__).with_name("causes.toml")
_HIGH, _OTHER = "high priority", "other types"
_ON_HOST, _ON_CPU_TOO, _ON_GPU_ALONE = "part of it ran on the host", "a check fails on the CPU too", "the rest"


@click.group()
def main() -> None:
    """Store GPU sessions and make their page."""


@main.command("keep")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--points", type=click.Path(path_type=Path, exists=True), help="Points of memory with estimates.")
@click.option("--cpu", multiple=True, type=click.Path(path_type=Path, exists=True), help="Evidence of the CPU.")
def keep_sessions(folders: tuple[Path, ...], points: Path | None, cpu: tuple[Path, ...]) -> None:
    """Keep what unpacked sessions found, the earliest first. Of a cell, the last result counts."""
    found = gathered([*(folder / "evidence" for folder in folders), *cpu])
    checks = [one for one in found.checks if one.requested_target == "cuda"]
    tiny = tuple(one for one in checks if "dimensions" not in one.conditions)
    keep(Gathered(runs=found.runs, checks=tiny), Target.parse("cuda"), CELLS)
    wide = {(one.cell_id, one.check_name): one for one in checks if "dimensions" in one.conditions}
    versions = [gathered([folder / "evidence"]).runs[0].versions for folder in folders]
    mutants = [one for folder in folders for file in sorted(folder.glob("mutants-*.json")) for one in _mutants(file)]
    plants = {
        one["plant"]: one for folder in folders for file in folder.glob("fallbacks-*.json") for one in _lines(file)
    }
    text: dict[str, Any] = {
        "versions": {name: sorted({one[name] for one in versions if name in one}) for name in _PACKAGES},
        "dates": sorted({one.started_at[:10] for one in found.runs}),
        "device": checks[0].accelerator,
        "fails_on_cpu": _fails_on_cpu(found.checks),
        "real_widths": [_short(one) for one in wide.values()],
        "mutants": mutants,
        "stages": json.loads((folders[-1] / "session.json").read_text(encoding="utf-8")),
        "plants": list(plants.values()),
        "memory": _lines(points) if points else [],
        "operators": [one for folder in folders for one in _lines(next(folder.glob("operators.json*"), None))],
        "stress": [one for folder in folders for one in _stress(folder / "stress.json")],
    }
    lines = ",\n".join(f"{json.dumps(name)}: {_packed(value)}" for name, value in text.items())
    SESSION.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _fails_on_cpu(lines: tuple[CheckLine, ...]) -> dict[str, list[str]]:
    """By model type and precision, the checks that the CPU fails in the same precision."""
    cells = last_checks([one for one in lines if one.requested_target == "cpu"], Target.parse("cpu"))
    failed = {
        cell: [name for name, one in checks.items() if one.outcome != "passed"] for cell, checks in cells.items()
    }
    return {cell: sorted(names) for cell, names in failed.items() if names}


def _packed(value: Any) -> str:
    """Return JSON of lists of objects with one object per line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(json.dumps(one) for one in value) + "\n]"
    return json.dumps(value)


def _short(line: CheckLine) -> dict[str, Any]:
    return {
        "cell": line.cell_id,
        "check": line.check_name,
        "outcome": line.outcome,
        "error": line.max_rel_error,
        "dimensions": line.conditions["dimensions"],
    }


def _mutants(file: Path) -> list[dict[str, Any]]:
    names = ("model", "operator", "is_mutant", "status", "caught_by", "error", "message")
    return [{name: one[name] for name in names} for one in json.loads(file.read_text(encoding="utf-8"))]


def _lines(file: Path | None) -> list[dict[str, Any]]:
    """Read the rows of a JSON or JSON lines file."""
    if file is None:
        return []
    text = file.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = (
        json.loads(text) if text.startswith("[") else [json.loads(x) for x in text.splitlines()]
    )
    return rows


def _stress(file: Path) -> Iterable[dict[str, Any]]:
    if file.is_file():
        for result in json.loads(file.read_text(encoding="utf-8"))["results"]:
            for rate in result["rates"]:
                limit = rate.get("limit") or {}
                yield {"precision": rate["precision"], "tflops": rate["tflops"], "limit": limit.get("value")}


@main.command()
def page() -> None:
    """Print docs/measured/cuda.md."""
    session = json.loads(SESSION.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {' and '.join(found)}" for name, found in session["versions"].items() if found)
    cells = last_checks([one for one in read_shipped(CELLS) if isinstance(one, CheckLine)], Target.parse("cuda"))
    head = _HEAD.format(
        device=session["device"],
        passed=sum(all(one.outcome == "passed" for one in found.values()) for found in cells.values()),
        cells=len(cells),
        dates=" and ".join(session["dates"]),
        versions=versions,
        cut=", ".join(one["stage"] for one in session["stages"] if one["exit_code"] == "out of time") or "none",
    )
    parts = [
        head,
        _cells(session["fails_on_cpu"]),
        _wide(session["real_widths"]),
        _proof(session),
        _memory(session["memory"]),
    ]
    click.echo("\n".join([*parts, _speed(session["stress"]), _operators(session["operators"])]))


def _cells(fails_on_cpu: Mapping[str, list[str]]) -> str:
    lines = [one for one in read_shipped(CELLS) if isinstance(one, CheckLine)]
    high = set(types_of_priority("high"))
    rows = []
    for of, precision in [
        *((_HIGH, precision) for precision in ("float32", "tf32", "bfloat16", "float16")),
        *((_OTHER, precision) for precision in ("float32", "bfloat16", "float16")),
    ]:
        some = [one for one in lines if one.precision == precision and (one.model in high) == (of == _HIGH)]
        cells = last_checks(some, Target.parse("cuda"))
        every = [one for found in cells.values() for one in found.values()]
        passed = sum(all(one.outcome == "passed" for one in found.values()) for found in cells.values())
        right = [one for one in every if one.outcome == "passed"]
        largest = [_largest(one for one in right if (one.check_name == "backward") is back) for back in (False, True)]
        rows.append((of, precision, len(cells), passed, len(every), *largest))
    head = ("", "precision", "cells", "every check passed", "checks", "largest error / tolerance", "of gradients")
    failed: dict[str, dict[str, list[CheckLine]]] = {_ON_HOST: {}, _ON_CPU_TOO: {}, _ON_GPU_ALONE: {}}
    for cell, checks in last_checks(lines, Target.parse("cuda")).items():
        if bad := [one for one in checks.values() if one.outcome != "passed"]:
            kind, why = _kind(bad, fails_on_cpu.get(cell.replace("/cuda/", "/cpu/"), []))
            failed[kind][cell] = why
    counts = [
        (kind, *(sum(cell.endswith(f"/{precision}") for cell in cells) for precision in PRECISIONS))
        for kind, cells in failed.items()
    ]
    return "\n".join(
        [
            "## Model types\n",
            "Of other types, as many ran as time allowed. The largest errors are of checks that passed.\n",
            tabulate(rows, headers=head, tablefmt="github"),
            "\nCells in which a check failed, counted in the last row that applies:\n",
            tabulate(counts, headers=("what failed", *PRECISIONS), tablefmt="github"),
            "\n### Part of it ran on the host\n",
            "The numbers are right. These models' code creates tensors without a device, such as MPNet's "
            "`torch.arange(qlen)`, or copies values to the host.\n",
            _by_type(failed[_ON_HOST]),
            "\n### A check fails on the CPU too\n",
            "In the same precision: the model's code lacks a feature, ignores a mask, or amplifies rounding.\n",
            _by_type(failed[_ON_CPU_TOO]),
            "\n### On the GPU alone\n",
            tabulate(
                [
                    (cell, " ".join(sorted(one.check_name for one in bad)), _why(bad[0]))
                    for cell, bad in failed[_ON_GPU_ALONE].items()
                ],
                headers=("cell", "checks that failed", "first reason"),
                tablefmt="github",
            ),
            "\nKnown causes; the others are open:\n",
            *(f"- {types}: {cause}." for types, cause in tomllib.loads(_CAUSES.read_text(encoding="utf-8")).items()),
            "",
        ]
    )


def _kind(bad: list[CheckLine], fails_on_cpu: Collection[str]) -> tuple[str, list[CheckLine]]:
    """What kind of failure a cell has, and the checks that show it."""
    numbers = [one for one in bad if not _is_on_host(one)]
    alone = [one for one in numbers if one.check_name not in fails_on_cpu]
    if alone:
        return _ON_GPU_ALONE, alone
    return (_ON_CPU_TOO, numbers) if numbers else (_ON_HOST, bad)


def _is_on_host(line: CheckLine) -> bool:
    """Whether a check failed for where it ran alone."""
    return "not computed on cuda alone" in line.error_message or (
        line.check_name == "runs_natively" and "assert not {" in line.error_message
    )


def _by_type(cells: Iterable[str]) -> str:
    """Model types with the precisions in which they are among `cells`."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        model, *_, precision = cell.split("/")
        found.setdefault(model, []).append(precision)
    order = {precision: place for place, precision in enumerate(PRECISIONS)}
    by_precisions: dict[str, list[str]] = {}
    for model, precisions in sorted(found.items()):
        by_precisions.setdefault(", ".join(sorted(precisions, key=order.__getitem__)), []).append(model)
    rows = [(precisions, ", ".join(models)) for precisions, models in sorted(by_precisions.items())]
    return tabulate(rows, headers=("precision", "model types"), tablefmt="github")


def _largest(lines: Iterable[CheckLine]) -> str:
    shares = [one.max_rel_error / one.tolerance for one in lines if one.max_rel_error and one.tolerance]
    return f"{max(shares, default=0):.2f}"


def _why(line: CheckLine) -> str:
    text = " ".join(line.error_message.split())
    return text if len(text) < 120 else f"{text[:117]}..."


def _wide(lines: list[dict[str, Any]]) -> str:
    rows = [
        (one["cell"], one["dimensions"], f"{one['error']:.1e}", sum(x["cell"] == one["cell"] for x in lines))
        for one in lines
        if one["check"] == "matches_reference"
    ]
    outcomes = Counter(one["outcome"] for one in lines)
    table = tabulate(rows, headers=("cell", "model", "error", "checks"), tablefmt="github")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"## At real widths\n\n{table}\n\n{counts}.\n"


def _proof(session: Mapping[str, Any]) -> str:
    last = {(one["model"], one["operator"]): one for one in session["mutants"]}
    clean = {model for (model, operator), one in last.items() if not operator and one["status"] == "clean"}
    others = sorted({model for model, _ in last} - clean)
    last = {key: one for key, one in last.items() if key[1] and key[0] in clean}
    statuses = Counter(one["status"] for one in last.values())
    plants = [(one["plant"], one["outcome"], one["level"], one["reason"]) for one in session["plants"]]
    caught = sum(one["outcome"] == "caught" for one in session["plants"])
    return "\n".join(
        [
            "## Would a failure be detected?\n",
            f"Models broken in ten ways on the device, {len(last)} mutants of {len({m for m, _ in last})} types: "
            + ", ".join(f"{count} {status}" for status, count in statuses.most_common())
            + ".\n",
            f"Not counted, because the unbroken model failed a check: {', '.join(others) or 'none'}.\n",
            f"Silent fallbacks planted on the device: {caught} of {len(plants)} are detected.\n",
            tabulate(plants, headers=("plant", "outcome", "level", "first reason"), tablefmt="github"),
            "",
        ]
    )


def _memory(points: list[dict[str, Any]]) -> str:
    known = [one for one in points if "estimate" in one]
    rows = []
    for name, chosen in (
        ("all", known),
        *((mode, [one for one in known if one["mode"] == mode]) for mode in ("inference", "generation", "training")),
        *((p, [one for one in known if one["precision"] == p]) for p in ("float32", "bfloat16", "float16")),
    ):
        errors = [one["estimate"] / (one["measured"] - one["workspace"]) - 1 for one in chosen]
        size = sorted(map(abs, errors))
        under = sum(one < -0.01 for one in errors)
        worst = size[int(0.95 * (len(size) - 1))]
        rows.append(
            (name, len(errors), f"{statistics.median(size):.1%}", f"{worst:.1%}", under, f"{min(errors):.1%}")
        )
    largest = max(one["measured"] for one in known) / 2**30
    beside = statistics.median(one["process"] - one["reserved"] for one in known if one.get("process"))
    left_out = Counter(one["left_out"].partition(":")[0] for one in points if "left_out" in one)
    reasons = Counter("too large" if "alone need" in name else name for name in left_out.elements())
    head = ("", "points", "error, median", "95th percentile", "more than 1 % under", "lowest")
    return "\n".join(
        [
            "## Memory\n",
            f"{len(known)} of {len(points)} requests, of {len({one['model_type'] for one in known})} model types at "
            f"their default sizes, with peaks up to {largest:.1f} GiB, beside the estimate that is made without the "
            "device. Memory that stays on the device after a request, such as cuBLAS's workspace, is subtracted from "
            "the measured peak first; remaining gradients of a training are calculated from the parameters. Errors "
            "are relative to the measurement. Training needs more than the estimate if weights are large; the reason "
            "is unknown. In addition to the memory that torch's allocator reserves, a process takes "
            f"{beside / 2**20:.0f} MiB on the device (median).\n",
            tabulate(rows, headers=head, tablefmt="github"),
            f"\nNot measured: {', '.join(f'{name} {count}' for name, count in reasons.most_common())}.\n",
        ]
    )


def _speed(rates: list[dict[str, Any]]) -> str:
    rows = [
        (one["precision"], one["tflops"], one["limit"], f"{one['tflops'] / one['limit']:.0%}" if one["limit"] else "")
        for one in rates
    ]
    table = tabulate(
        rows, headers=("precision", "tera-operations a second", "published peak", "share"), tablefmt="github"
    )
    return f"## Products under sustained load\n\n{table}\n"


def _operators(rows: list[dict[str, Any]]) -> str:
    names = len({one["operator"] for one in rows})
    dtypes = list(dict.fromkeys(one["dtype"] for one in rows))
    outcomes = list(dict.fromkeys(one["outcome"] for one in rows))
    found = Counter((one["dtype"], one["outcome"]) for one in rows)
    table = [(dtype, *(found[dtype, one] for one in outcomes)) for dtype in dtypes]
    return "\n".join(
        [
            "## Operators\n",
            f"The first {names} operators of torch's own table of samples (`op_db`), as many as time allowed, "
            "beside float64 on the processor for floating-point numbers and the same dtype there for others. "
            "*Computed* doesn't mean right: errors are in the file, and ties, signs of vectors and random numbers "
            "aren't distinguished yet.\n",
            tabulate(table, headers=("dtype", *outcomes), tablefmt="github"),
        ]
    )


if __name__ == "__main__":
    main()
