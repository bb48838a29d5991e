"""PyTorch: the expected accuracy of compiled models in CI, `benchmarks/dynamo/ci_expected_accuracy/**.csv`.

Files in a folder `rocm` are of AMD GPUs, those with the word `cpu` in their name of CPUs, all others of NVIDIA GPUs.
The words are those of `benchmarks/dynamo/common.py`; the precisions are those of `.ci/pytorch/test.sh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..published import HARNESS, Importer, Row, below, csv_of, files_in, refused

_NAME = re.compile(r"(?P<compiler>.+)_(?:huggingface|timm(?:_models)?|torchbench)_(?P<mode>inference|training)")
_OUTCOMES = {
    "pass": "pass",
    "pass_due_to_skip": "skip",
    "fail_to_run": "fail",
    "fail_accuracy": "wrong_numbers",
    "timeout": "timeout",
    "OOM": "does_not_fit",
    "eager_1st_run_OOM": "does_not_fit",
    "eager_two_runs_differ": "eager_two_runs_differ",
    "model_fail_to_load": HARNESS,
    "infra_error": HARNESS,
}


def outcome_of(word: str) -> str:
    """Return the outcome for a word of the benchmark; a word that it doesn't explain means untested."""
    return _OUTCOMES.get(word, "untested")


def compiler_and_mode(file: Path) -> tuple[str, str]:
    """Return compiler and mode from the name of a result file. Raises `BrokenInput` for another name."""
    found = _NAME.fullmatch(file.stem)
    if found is None:
        raise refused(file, "its name isn't like inductor_huggingface_inference.csv")
    return found["compiler"], found["mode"]


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file, or of all files of a folder."""
    for file in files_in(path, "*.csv"):
        compiler, mode = compiler_and_mode(file)
        target = "rocm" if "rocm" in file.parts else "cpu" if "cpu" in compiler.split("_") else "cuda"
        precision = "float32" if target == "cpu" else "amp" if mode == "training" else "bfloat16"
        for one in csv_of(file, "name", "accuracy"):
            yield Row(
                source=f"pytorch/pytorch:{below(file, 'benchmarks')}",
                model=one["name"],
                target=target,
                route=f"torch-{compiler.replace('cpu_', '')}",
                precision="amp" if "_amp" in compiler else precision,
                mode=mode,
                outcome=outcome_of(one["accuracy"]),
                detail=one["accuracy"],
            )


IMPORTER = Importer(about="a CSV of PyTorch's expected accuracy", rows=rows, license="BSD-3-Clause")
