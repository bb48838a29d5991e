"""What a test's name and properties say about model, target and precision: `test_forward[bert-cuda-float16]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..published import Row

_PARAMETERS = re.compile(r"\[(.+)\]$")
_TARGETS = ("cpu", "cuda", "rocm", "mps", "xpu", "tpu", "hpu", "openvino", "qnn", "webnn", "webgpu")
_PRECISIONS = ("float32", "fp32", "float16", "fp16", "bfloat16", "bf16", "float8", "fp8", "int8", "int4")


def row_of_test(source: str, name: str, outcome: str, text: str, known: Mapping[str, Any]) -> Row:
    """Return the row of a test. `known` are properties; `model`, `target`, `device` (the SKU), `precision` and
    `route` replace what the name says. A target that isn't named is empty."""
    found = _PARAMETERS.search(name)
    parameters = found[1] if found else name
    words = re.findall(r"[a-z0-9.]+", parameters.lower())
    values = {key: str(known.get(key) or "") for key in ("model", "target", "device", "precision", "route")}
    meant = {
        "target": next((word for word in words if word in _TARGETS), ""),
        "precision": next((word for word in words if word in _PRECISIONS), ""),
    }
    left = [word for word in parameters.split("-") if word.lower() not in (*_TARGETS, *_PRECISIONS)]
    return Row(
        source=source,
        model=values["model"] or "-".join(left) or name,
        target=values["target"] or meant["target"],
        device=values["device"],
        precision=values["precision"] or meant["precision"],
        route=values["route"],
        mode=name.partition("[")[0][:60] or "test",
        outcome=outcome,
        detail=text,
    )
