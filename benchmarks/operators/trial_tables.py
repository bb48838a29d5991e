"""Table sections from trials of single operators: their ONNX types, and which of them run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version

from generators.compatibility.operators import Section
from generators.compatibility.operators.operator_table import EXPORTS
from hardware.export.onnx_export import OPSET
from hardware.files import write_whole
from hardware.workers import environment_of

from .trials import Tried

_BEFORE = ("export", "convert")
"""Stages that don't depend on the device."""

_SOURCES: Mapping[str, str] = {
    "openvino": "graphs of one operator, converted by OpenVINO and run by its CPU plug-in",
    "qnn": f"graphs of one operator, exported to ONNX (opset {OPSET}) and run strictly on HTP's emulator",
}


def section_of(target: str, tried: Iterable[Tried], made_on: str) -> Section:
    """Return the section of trials: an operator runs if any of its tried calls does, with the failing calls as
    condition. It is missing if none does, and unknown if it couldn't be called alone."""
    supported, conditions, missing, before = [], {}, {}, []
    for operator, examples in sorted(_by_operator(tried).items()):
        failed = [one for one in examples if not one.works]
        if len(failed) == len(examples):
            missing[operator] = f"{failed[0].stage}: {failed[0].reason} (given {failed[0].given})"
            if all(one.stage in _BEFORE for one in failed):
                before.append(operator)
            continue
        supported.append(operator)
        if failed:
            conditions[operator] = "; ".join(f"not {one.given} ({one.stage}: {one.reason})" for one in failed)
    return Section(
        kind="trial",
        names="aten",
        source=_SOURCES[target],
        made_by=f"python -m benchmarks.operators trial {target}",
        made_on=made_on,
        versions=_versions(target),
        supported=tuple(supported),
        conditions=conditions,
        missing=missing,
        before_device=tuple(before),
        variants=("", "CPU") if target == "openvino" else None,
        left_out="nothing: no model ran, and how operators are called is a fact of the models",
    )


def _by_operator(tried: Iterable[Tried]) -> dict[str, list[Tried]]:
    found: dict[str, list[Tried]] = defaultdict(list)
    for one in tried:
        if one.stage != "call":
            found[one.operator].append(one)
    return found


def _versions(target: str) -> dict[str, str]:
    own = {name: version(name).partition("+")[0] for name in ("torch", "onnx", "openvino")}
    if target == "openvino":
        return {name: own[name] for name in ("openvino", "torch")}
    runtime = environment_of("qnn").versions
    return {"onnxruntime-qnn": runtime["onnxruntime-qnn"], "torch": own["torch"], "onnx": own["onnx"]}


def write_exports(tried: Sequence[Tried], made_on: str) -> None:
    """Write the ONNX types of each operator in its most common exported call, or the reason why none was exported."""
    types: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for operator, examples in sorted(_by_operator(tried).items()):
        exported = [one for one in examples if one.stage != "export"]
        if exported:
            types[operator] = list(exported[0].types)
        else:
            refused[operator] = f"torch's exporter: {examples[0].reason}"
    plain = {
        "made_by": "python -m benchmarks.operators trial onnx",
        "made_on": made_on,
        "opset": OPSET,
        "versions": {name: version(name).partition("+")[0] for name in ("torch", "onnx", "onnxruntime")},
        "types": types,
        "refused": refused,
    }
    write_whole(EXPORTS, json.dumps(plain, indent=1, sort_keys=True) + "\n")
