"""llama.cpp: which operators a backend supports, `docs/ops/<backend>.csv`, as `test-backend-ops support --output csv`
prints it. Rows are of operators in one type, not of models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, csv_of, files_in

_TYPE = re.compile(r"type(?:_[aA])?=(\w+)")
_TARGETS = {
    **{"cuda": "cuda", "rocm": "rocm", "hip": "rocm", "metal": "mps", "sycl": "xpu", "cpu": "cpu", "blas": "cpu"},
    **{"webgpu": "webgpu", "openvino": "openvino"},
}


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each backend, operator and type, with the number of shapes that it supports."""
    for file in files_in(path, "*.csv"):
        counts: dict[tuple[str, str, str], Counter[bool]] = {}
        for one in csv_of(file, "backend_name", "op_name", "op_params", "supported"):
            found = _TYPE.search(one["op_params"])
            key = (one["backend_name"], one["op_name"], found[1] if found else "")
            counts.setdefault(key, Counter())[one["supported"] in ("1", "yes")] += 1
        for (backend, operator, kind), count in counts.items():
            name = re.sub(r"\d+$", "", backend).lower()
            yield Row(
                source=f"ggml-org/llama.cpp:docs/ops/{file.name}",
                model=operator,
                model_type=f"ggml.{operator}",
                target=_TARGETS.get(name, name),
                device="" if backend.lower() in _TARGETS else backend,
                route="ggml",
                precision=kind,
                mode="operator",
                outcome="declared" if not count[False] else "some_tests_failed" if count[True] else "excluded",
                detail=f"{count[True]} of {count.total()} shapes are supported",
            )


IMPORTER = Importer(about="a CSV of operators of llama.cpp", rows=rows, license="MIT")
