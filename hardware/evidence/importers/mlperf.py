"""MLPerf Inference: `summary_results.json` of a round's results, with the descriptions in `systems/*.json`.

Layout: https://github.com/mlcommons/inference, `tools/submission`. Only accepted results are published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..published import Importer, Row, files_in, json_of, refused

_TARGETS = (
    ("nvidia", "cuda"),
    ("amd", "rocm"),
    ("instinct", "rocm"),
    ("gaudi", "hpu"),
    ("tpu", "tpu"),
    ("intel", "xpu"),
)


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a summary, or of all summaries of a folder with its systems."""
    systems = {}
    for file in path.rglob("systems/*.json") if path.is_dir() else ():
        systems[file.stem] = json_of(file)
    for file in files_in(path, "summary_results.json", "summary.json"):
        data = json_of(file)
        if not isinstance(data, list):
            raise refused(file, "it isn't a list of results")
        for one in data:
            yield _row(file, one, {**systems.get(one.get("Platform", ""), {}), **one})


def _row(file: Path, one: Mapping[str, Any], known: Mapping[str, Any]) -> Row:
    accelerator = str(known.get("accelerator_model_name") or "").strip()
    named = accelerator.lower() not in ("", "n/a", "none", "-")
    target = next((name for part, name in _TARGETS if part in accelerator.lower()), "other") if named else "cpu"
    return Row(
        source=f"mlcommons/inference_results:{file.name}",
        model=str(one["Model"]),
        target=target,
        device=accelerator if named else str(known.get("host_processor_model_name") or ""),
        route=str(known.get("framework") or ""),
        precision=str(known.get("weight_data_types") or "").lower(),
        mode=str(one["Scenario"]),
        outcome="pass",
        detail=f"{one['Result']} {one.get('Result_Units') or one.get('Units') or ''}".strip(),
    )


IMPORTER = Importer(about="a summary of MLPerf results", rows=rows, license="Apache-2.0")
