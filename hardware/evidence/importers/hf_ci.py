"""Hugging Face's daily CI: `model_results.json`, the counts of transformers' own tests for each model's folder, for
one and for several devices.

Layout: https://github.com/huggingface/transformers, `utils/notification_service.py` and
`utils/tpu_ci/make_model_results.py`. The file doesn't name its device: a path with the word `amd` is of ROCm, one
with `tpu` of TPUs, all others are of CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..published import Importer, Row, files_in, json_of

_SKU = re.compile(r"mi\d{3}x?|a10g?|a100|h100|t4")
_SOURCES = {
    "cuda": "hf-internal-testing/transformers_daily_ci",
    "rocm": "optimum-amd/transformers_daily_ci",
    "tpu": "hf-gcp-tpu-internal/transformers_daily_ci",
}


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each model and number of devices that ran.

    Tests compare with numbers of another device, so that a model of which some tests failed is undecided.
    """
    for file in files_in(path, "model_results.json"):
        words = re.split(r"[^a-z0-9]+", str(file).lower())
        sku = next(filter(_SKU.fullmatch, words), "")
        amd = "amd" in words or "rocm" in words or sku.startswith("mi")
        target = "rocm" if amd else "tpu" if "tpu" in words else "cuda"
        for name, one in json_of(file).items():
            failures = one["failures"]
            ran = one["job_link"] or failures or ("single",)
            for machine in ("single", "multi"):
                if machine in ran:
                    trace = (failures.get(machine) or [{}])[0].get("trace", "")
                    failed = _failed(one, machine)
                    yield Row(
                        source=f"{_SOURCES[target]}:{file.name}",
                        model=name.removeprefix("models_").removeprefix("models/"),
                        target=target,
                        device=sku.upper(),
                        route="eager",
                        mode=f"tests-{machine}",
                        outcome=_outcome(one, failed),
                        detail=f"{failed} failed, {one['success']} passed in all: {trace}",
                    )


def _failed(one: Mapping[str, Any], machine: str) -> int:
    """Return the number of tests that failed on a machine, with those that it isn't known of which they are."""
    return sum(counts[machine] + counts["unclassified"] for counts in one["failed"].values())


def _outcome(one: Mapping[str, Any], failed: int) -> str:
    if failed and not one["success"]:
        return "fail"
    if failed or (one["success"] and (one.get("errors") or one.get("error"))):  # not all tests were run
        return "some_tests_failed"
    return "pass" if one["success"] else "untested"


IMPORTER = Importer(about="model_results.json of Hugging Face's CI", rows=rows)
