"""Hugging Face's daily CI: `model_results.json`, the counts of transformers' own tests for each model's folder, for
one and for several GPUs.

Layout: `utils/notification_service.py` of transformers. A path that names an AMD GPU is of ROCm, all others of CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, files_in, json_of

_AMD = re.compile(r"amd|rocm|mi\d{3}", re.IGNORECASE)
_SKU = re.compile(r"mi\d{3}|a10|a100|h100|t4", re.IGNORECASE)


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each model and number of GPUs. Tests compare with numbers of another GPU, so that a model of
    which some tests failed is undecided."""
    for file in files_in(path, "model_results.json"):
        place = str(file)
        sku = _SKU.search(place)
        for name, one in json_of(file).items():
            failures = one.get("failures") or {}
            for machine in ("single", "multi"):
                failed = sum(counts.get(machine, 0) for counts in one["failed"].values())
                lines = failures.get(machine) or []
                if not failed and not one["success"]:
                    outcome = "untested"
                else:
                    outcome = "pass" if not failed else "some_tests_failed" if one["success"] else "fail"
                yield Row(
                    source="hf-internal-testing/transformers_daily_ci:model_results.json",
                    model=name.removeprefix("models_").removeprefix("models/"),
                    target="rocm" if _AMD.search(place) else "cuda",
                    device=sku[0].upper() if sku else "",
                    route="eager",
                    mode=f"tests-{machine}",
                    outcome=outcome,
                    detail=f"{failed} failed, {one['success']} passed in all: {(lines or [{}])[0].get('trace', '')}",
                )


IMPORTER = Importer(about="model_results.json of Hugging Face's CI", rows=rows)
