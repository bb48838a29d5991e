"""ONNX types that ONNX Runtime Web runs on WebGPU and WebNN, from the tables in its npm package."""

from __future__ import annotations

import json
import re
from pathlib import Path

from generators.compatibility.operators import Section
from hardware.export.onnx_export import OPSET

_FILES = {"webgpu": "webgpu-operators.md", "webnn": "webnn-operators.md"}
_ROW = re.compile(r"^\| *(?P<name>\w+) *\| *(?P<opsets>[^|]*?) *\|(?P<rest>.*)\|$")


def web_section(target: str, package: Path, made_on: str) -> Section:
    """Return the declared section of `webgpu` or `webnn`, from an unpacked npm package (`npm pack
    onnxruntime-web`)."""
    file = package / "docs" / _FILES[target]
    release = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    supported, conditions, missing = [], {}, {}
    for line in file.read_text(encoding="utf-8").splitlines():
        row = _ROW.match(line)
        if row is None or "ai.onnx(" not in row["opsets"]:
            continue
        name, comment = f"onnx.{row['name']}", row["rest"].rpartition("|")[2].strip()
        if not _takes(row["opsets"], OPSET):
            missing[name] = f"only in opset {row['opsets']}, and exports have {OPSET}"
            continue
        supported.append(name)
        if comment:
            conditions[name] = comment
    return Section(
        kind="declared",
        names="onnx",
        source=f"docs/{_FILES[target]} of https://www.npmjs.com/package/onnxruntime-web/v/{release}",
        made_by="python -m benchmarks.operators web PACKAGE",
        made_on=made_on,
        versions={"onnxruntime-web": release},
        supported=tuple(sorted(supported)),
        conditions=conditions,
        missing=missing,
        complete=True,
    )


def _takes(opsets: str, wanted: int) -> bool:
    """Whether `ai.onnx(6-12, 13+)` includes the operator's definition of the wanted opset."""
    listed = re.search(r"ai\.onnx\(([^)]*)\)", opsets)
    parts = [one.strip() for one in listed[1].split(",")] if listed else []
    return any(_holds(one, wanted) for one in parts)


def _holds(part: str, wanted: int) -> bool:
    low, _, high = part.rstrip("+").partition("-")
    return int(low) <= wanted and (part.endswith("+") or wanted <= int(high or low))
