"""Operators in our own runs: those of passing models, and those in messages of failing ones.

Held-out types are omitted, so that no prediction is scored on its own evidence.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.evidence_table import dates_said, versions_of
from generators.compatibility.operators import Section
from generators.compatibility.operators.operator_names import operators_named
from generators.compatibility.operators.operator_table import GRAPHS, onnx_types
from generators.compatibility.prediction_scores import is_held_out
from generators.models.recipe import Recipe
from hardware.backends._web_placement import WHOLE
from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.shipped_evidence import LAST_CHECK, last_checks, read_shipped
from hardware.files import write_whole
from hardware.target import Target

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "openvino": ("openvino", "optimum-intel", "torch", "transformers"),
    "qnn": ("onnxruntime-qnn", "torch", "transformers"),
    "webgpu": ("onnxruntime-web (webgpu)", "chromium (webgpu)", "torch", "transformers"),
    "webnn": ("onnxruntime-web (webnn)", "@sparticuz/chromium (webnn)", "torch", "transformers"),
}
"""The packages that a target's runs depend on, as in evidence."""

TARGETS = tuple(_PACKAGES)
_VARIANTS: Mapping[str, tuple[str, ...]] = {"openvino": ("", "CPU"), "webgpu": ("",), "webnn": ("",)}
"""The variants of the runs; all variants if the target isn't listed."""


def run_sections(
    target: str,
    file: Path,
    recipes: Mapping[str, Recipe],
    made_on: str,
) -> tuple[Section, Section]:
    """Return two sections from stored float32 evidence: with torch's operators, and with the runtime's names.

    An operator runs if a model that passes every check without the host has it in its recipe or execution proof. It
    is
    missing if a failing model's message names it and no passing model has it.
    """
    lines = read_shipped(file)
    runs = [line for line in lines if isinstance(line, RunLine)]
    cells = last_checks([line for line in lines if isinstance(line, CheckLine)], Target(name=target))
    kept = {name: list(checks.values()) for name, checks in cells.items() if _counts(Cell.parse(name))}
    passing = {Cell.parse(name).model: checks for name, checks in kept.items() if _passes(checks)}
    failing = {Cell.parse(name).model: checks for name, checks in kept.items() if not _passes(checks)}
    counts = Counter(name for model in passing if model in recipes for name in recipes[model].operators)
    native = Counter(name for checks in passing.values() for line in checks[-1:] for name in line.native_ops)
    refused: dict[str, list[str]] = {}
    for model, checks in sorted(failing.items()):
        for line in checks:
            for name, said in operators_named(line.error_message).items():
                causes = refused.setdefault(name, [])
                if f"{said.how} in {model}" not in causes:
                    causes.append(f"{said.how} in {model}")
    versions = versions_of(runs, _PACKAGES[target])
    left_out = "types that are held out (generators/compatibility/prediction_scores.py)"

    def section(names: str, seen: Counter[str]) -> Section:
        plain = {_plain(name): count for name, count in seen.items()}
        about = {name: why for name, why in refused.items() if (name.startswith("aten.")) == (names == "aten")}
        return Section(
            kind="runs",
            names=names,
            source=f"{len(passing)} tiny models that pass and {len(failing)} that don't, run {dates_said(runs)}",
            made_by=f"python -m benchmarks.operators runs {target}",
            made_on=made_on,
            versions={name: re.sub(r"\+\w+", "", had) for name, had in versions.items()},
            supported=tuple(sorted(plain)),
            conditions={name: f"also {', '.join(why[:3])}" for name, why in sorted(about.items()) if name in plain},
            missing={name: ", ".join(why[:5]) for name, why in sorted(about.items()) if name not in plain},
            variants=_VARIANTS.get(target),
            left_out=left_out,
        )

    return section("aten", counts), section(target if target == "openvino" else "onnx", native)


def write_graphs(file: Path, recipes: Mapping[str, Recipe], made_on: str) -> None:
    """Count the graphs of passing qnn models that lack the ONNX types of an operator in the recipe."""
    checks = [line for line in read_shipped(file) if isinstance(line, CheckLine)]
    gone: Counter[str] = Counter()
    graphs: Counter[str] = Counter()
    for name, lines in last_checks(checks, Target(name="qnn")).items():
        cell = Cell.parse(name)
        if not _counts(cell) or cell.model not in recipes or not _passes(list(lines.values())):
            continue
        nodes = {_plain(one).removeprefix("onnx.") for one in lines[LAST_CHECK].native_ops}
        for operator in recipes[cell.model].operators:
            types = onnx_types().get(operator)
            if types and not isinstance(types, str):
                graphs[operator] += 1
                gone[operator] += not set(types) <= nodes
    plain = {
        "made_by": "python -m benchmarks.operators runs qnn",
        "made_on": made_on,
        "left_out": "types that are held out (generators/compatibility/prediction_scores.py)",
        "operators": {name: [gone[name], count] for name, count in sorted(graphs.items()) if gone[name]},
    }
    write_whole(GRAPHS, json.dumps(plain, indent=1) + "\n")


def _plain(name: str) -> str:
    """`onnx.Conv` for `onnx.com.ms.internal.nhwc.Conv`: the same operator with its axes in another order; of whole
    numbers it is the same too."""
    name = name.removesuffix(WHOLE)
    return f"onnx.{name.rpartition('.')[2]}" if name.startswith("onnx.") else name


def _counts(cell: Cell) -> bool:
    return cell.precision == "float32" and not cell.target.variant and not is_held_out(cell.model)


def _passes(checks: Sequence[CheckLine]) -> bool:
    return all(
        line.outcome is Outcome.PASSED and all(name.endswith(WHOLE) for name in line.offloaded_ops) for line in checks
    )
