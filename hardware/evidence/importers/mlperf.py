"""MLPerf Inference: `summary_results.json` of a round's results, with the descriptions in `systems/*.json`.

Layout: https://github.com/mlcommons/inference, `tools/submission/generate_final_report.py`, as in the results of
v4.1 and v5.1. Only accepted results are published. One that is `inferred` was measured in another scenario, which
has a row of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..published import Importer, Row, files_in, json_of, refused

_TARGETS = (
    ("nvidia", "cuda"),
    ("tesla", "cuda"),
    ("amd", "rocm"),
    ("gaudi", "hpu"),
    ("tpu", "tpu"),
    ("intel", "xpu"),
)
_PRECISION = re.compile(r"\b(?:fp|mxfp|nvfp|bf|float|int|uint)\d+\b")


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a summary, or of all summaries of a folder with its systems."""
    systems = {}
    for file in path.rglob("systems/*.json") if path.is_dir() else ():
        systems[file.stem] = json_of(file)
    for file in files_in(path, "summary_results.json"):
        data = json_of(file)
        if not isinstance(data, list):
            raise refused(file, "it isn't a list of results")
        for one in data:
            if not one["inferred"]:
                yield _row(file, one, systems.get(one["Platform"], {}))


def _row(file: Path, one: Mapping[str, Any], system: Mapping[str, Any]) -> Row:
    accelerator = (one["Accelerator"] or str(system.get("accelerator_model_name") or "")).strip()
    named = accelerator.lower() not in ("", "n/a", "none", "-")
    target = next((name for part, name in _TARGETS if part in accelerator.lower()), "other") if named else "cpu"
    stated = set(_PRECISION.findall(one["weight_data_types"].lower()))
    precision = stated.pop() if len(stated) == 1 else ""
    return Row(
        source=f"mlcommons/inference_results=={one['version']}:{file.name}",
        model=one["UsedModel"],
        target=target,
        device=accelerator if named else one["Processor"],
        route=one["Software"] or str(system.get("framework") or ""),
        precision=precision,
        mode=one["Scenario"],
        outcome="pass" if precision else "precision_not_stated",
        detail=f"{one['Performance_Result']} {one['Performance_Units']}, weights in {one['weight_data_types']}",
    )


IMPORTER = Importer(about="a summary of MLPerf results", rows=rows, license="Apache-2.0")
