"""Keeps what sessions on a GPU found, and prints docs/CUDA.md from it."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from benchmarks.evidence_table import Gathered, gathered, keep
from hardware.evidence.kept import last_checks, read_kept
from hardware.evidence.record import CheckLine
from hardware.target import Target

CELLS, SESSION = Path("docs/evidence/cuda.jsonl.gz"), Path("docs/evidence/cuda-session.json")
_PACKAGES = ("torch", "transformers", "numpy", "nvidia-cublas", "nvidia-cudnn-cu13")
_CELL = re.compile(r"\s*\|\s*")
_HEAD = """# Measured on a GPU

Made by `python -m benchmarks.gpu_session.page page` from `docs/evidence/cuda.jsonl.gz` and
`docs/evidence/cuda-session.json`: {sessions}. Versions: {versions}.

`make gpu-session` runs all of it on a machine with one GPU, in at most 25 minutes and without a network;
`make gpu-session ARGS="--backend cpu"` rehearses it. Subjects are tiny models with random weights unless it says
otherwise.
"""


@click.group()
def main() -> None:
    """Sessions on a GPU."""


@main.command("keep")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--points", type=click.Path(path_type=Path, exists=True), help="Points of memory with estimates.")
@click.option("--without", multiple=True, help="Cells whose results a fault of our own made useless.")
def keep_sessions(folders: tuple[Path, ...], points: Path | None, without: tuple[str, ...]) -> None:
    """Keep what unpacked sessions found; of a stage that several ran, the last folder's result counts."""
    found = gathered([folders[-1] / "evidence"])
    checks = [one for one in found.checks if one.cell_id not in without]
    tiny = tuple(one for one in checks if "dimensions" not in one.conditions)
    keep(Gathered(runs=found.runs, checks=tiny), Target.parse("cuda"), CELLS)
    wide = [_short(one) for one in checks if "dimensions" in one.conditions and one.requested_target == "cuda"]
    text: dict[str, Any] = {
        "versions": {name: found.runs[0].versions[name] for name in _PACKAGES if name in found.runs[0].versions},
        "dates": sorted({one.started_at[:10] for one in found.runs}),
        "device": checks[0].accelerator,
        "without": sorted(without),
        "real_widths": wide,
        "mutants": [one for folder in folders for file in folder.glob("mutants-*.json") for one in _mutants(file)],
        "plants": [row for file in sorted(folders[-1].glob("fallbacks-*.md")) for row in _rows(file)],
        "memory": _lines(points) if points else [],
        "operators": [one for folder in folders for one in _lines(next(folder.glob("operators.json*"), None))],
        "stress": [one for folder in folders for one in _stress(folder / "stress.json")],
    }
    lines = ",\n".join(f"{json.dumps(name)}: {_packed(value)}" for name, value in text.items())
    SESSION.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _packed(value: Any) -> str:
    """Lists of objects with one object a line."""
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
    names = ("model", "operator", "is_mutant", "status", "caught_by", "error")
    return [{name: one[name] for name in names} for one in json.loads(file.read_text(encoding="utf-8"))]


def _rows(file: Path) -> list[dict[str, str]]:
    """The rows of the table of plants in a page of `benchmarks.fallbacks`."""
    rows = [
        _CELL.split(line.strip("| \n")) for line in file.read_text(encoding="utf-8").splitlines() if "| cuda" in line
    ]
    return [dict(zip(("plant", "target", "outcome", "level", "reason"), row, strict=False)) for row in rows]


def _lines(file: Path | None) -> list[dict[str, Any]]:
    return [] if file is None else [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _stress(file: Path) -> Iterable[dict[str, Any]]:
    if file.is_file():
        for result in json.loads(file.read_text(encoding="utf-8"))["results"]:
            for rate in result["rates"]:
                limit = rate.get("limit") or {}
                yield {"precision": rate["precision"], "tflops": rate["tflops"], "limit": limit.get("value")}


@main.command()
def page() -> None:
    """Print docs/CUDA.md."""
    session = json.loads(SESSION.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {version}" for name, version in session["versions"].items())
    head = _HEAD.format(sessions=f"{session['device']}, {' and '.join(session['dates'])}", versions=versions)
    parts = [
        head,
        _cells(session["without"]),
        _wide(session["real_widths"]),
        _proof(session),
        _memory(session["memory"]),
    ]
    click.echo("\n".join([*parts, _speed(session["stress"]), _operators(session["operators"])]))


def _cells(without: list[str]) -> str:
    lines = [one for one in read_kept(CELLS) if isinstance(one, CheckLine)]
    rows, failed = [], []
    for precision in ("float32", "tf32", "bfloat16", "float16"):
        cells = last_checks([one for one in lines if one.precision == precision], Target.parse("cuda"))
        bad = {cell: [one for one in found.values() if one.outcome != "passed"] for cell, found in cells.items()}
        compared = [found["matches_reference"] for found in cells.values() if "matches_reference" in found]
        shares = [one.max_rel_error / one.tolerance for one in compared if one.max_rel_error and one.tolerance]
        checks = sum(map(len, cells.values()))
        rows.append((precision, len(cells), sum(not one for one in bad.values()), checks, f"{max(shares):.2f}"))
        failed += [
            (cell, " ".join(sorted(one.check_name for one in found)), _why(found[0]))
            for cell, found in bad.items()
            if found
        ]
    head = ("precision", "cells", "every check passed", "checks", "largest error / tolerance")
    return "\n".join(
        [
            "## Model types of high priority\n",
            tabulate(rows, headers=head, tablefmt="github"),
            "\nThe others:\n",
            tabulate(failed, headers=("cell", "checks that failed", "first reason"), tablefmt="github"),
            f"\nLeft out, since a fault of our own (mended since) spoiled their results: {', '.join(without)}.\n",
        ]
    )


def _why(line: CheckLine) -> str:
    text = " ".join(line.error_message.split())
    return text if len(text) < 120 else f"{text[:117]}..."


def _wide(lines: list[dict[str, Any]]) -> str:
    rows = [
        (one["cell"], one["dimensions"], f"{one['error']:.1e}", sum(x["cell"] == one["cell"] for x in lines))
        for one in lines
        if one["check"] == "matches_reference"
    ]
    failed = sum(one["outcome"] != "passed" for one in lines)
    table = tabulate(rows, headers=("cell", "model", "error", "checks"), tablefmt="github")
    return f"## At real widths\n\n{table}\n\n{len(lines)} checks, {failed} failed.\n"


def _proof(session: Mapping[str, Any]) -> str:
    last = {(one["model"], one["operator"]): one for one in session["mutants"]}
    unsure = {
        model for (model, operator), one in last.items() if not operator and one["caught_by"] == "matches_reference"
    }
    last = {(model, operator): one for (model, operator), one in last.items() if operator and model not in unsure}
    statuses = Counter(one["status"] for one in last.values())
    plants = [(one["plant"], one["outcome"], one["level"], one["reason"]) for one in session["plants"]]
    caught = sum(one["outcome"] == "caught" for one in session["plants"])
    return "\n".join(
        [
            "## Would a failure be seen?\n",
            f"Models broken in ten ways on the device, {len(last)} mutants of {len({m for m, _ in last})} types: "
            + ", ".join(f"{count} {status}" for status, count in statuses.most_common())
            + ".\n",
            f"Left out, since the unbroken model fails the same check: {', '.join(sorted(unsure)) or 'none'}.\n",
            f"Silent fallbacks planted on the device: {caught} of {len(plants)} are caught.\n",
            tabulate(plants, headers=("plant", "", "level", "first reason"), tablefmt="github"),
            "",
        ]
    )


def _memory(points: list[dict[str, Any]]) -> str:
    known = [one for one in points if "estimate" in one and "measured" in one]
    rows = []
    for name, chosen in (
        ("all", known),
        *((mode, [one for one in known if one["mode"] == mode]) for mode in ("inference", "generation", "training")),
        *((p, [one for one in known if one["precision"] == p]) for p in ("float32", "bfloat16", "float16")),
    ):
        errors = sorted(one["estimate"] / (one["measured"] - _beside(one)) - 1 for one in chosen)
        size = sorted(map(abs, errors))
        worst = size[int(0.95 * (len(size) - 1))]
        under = sum(one < -0.01 for one in errors) / len(errors)
        rows.append((name, len(errors), f"{statistics.median(size):.1%}", f"{worst:.1%}", f"{under:.0%}"))
    largest = max(one["measured"] for one in known) / 2**30
    beside = statistics.median(one["process"] - one["reserved"] for one in known if one.get("process"))
    return "\n".join(
        [
            "## Memory\n",
            f"{len(known)} points of {len({one['model_type'] for one in known})} model types at their default sizes, "
            f"peaks up to {largest:.1f} GiB, against the estimate that is made without the device. *under* is the "
            "share of points where the estimate is lower by more than 1 %. Beside what torch's allocator reserves, "
            f"a process takes {beside / 2**20:.0f} MiB on the device (median).\n",
            tabulate(rows, headers=("", "points", "median", "95th", "under"), tablefmt="github"),
            "",
        ]
    )


def _beside(one: Mapping[str, Any]) -> int:
    """Bytes that lay on the device before the request, and aren't the model's or its inputs'."""
    return int(one["before"] - one["weights_and_inputs"])


def _speed(rates: list[dict[str, Any]]) -> str:
    rows = [
        (one["precision"], one["tflops"], one["limit"], f"{one['tflops'] / one['limit']:.0%}" if one["limit"] else "")
        for one in rates
    ]
    table = tabulate(rows, headers=("precision", "TFLOP/s", "published peak", "share"), tablefmt="github")
    return f"## Products under sustained load\n\n{table}\n"


def _operators(rows: list[dict[str, Any]]) -> str:
    dtypes = list(dict.fromkeys(one["dtype"] for one in rows))
    outcomes = list(dict.fromkeys(one["outcome"] for one in rows))
    found = Counter((one["dtype"], one["outcome"]) for one in rows)
    table = [(dtype, *(found[dtype, one] for one in outcomes)) for dtype in dtypes]
    return "\n".join(
        [
            "## Operators\n",
            f"{len({one['operator'] for one in rows})} operators of torch's own table of samples (`op_db`), against "
            "float64 on the processor. Errors are in the file; which of them are ties, signs of vectors or random "
            "numbers is not told apart yet.\n",
            tabulate(table, headers=("dtype", *outcomes), tablefmt="github"),
        ]
    )


if __name__ == "__main__":
    main()
