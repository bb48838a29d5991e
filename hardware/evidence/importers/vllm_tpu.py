"""vLLM on TPUs: `support_matrices/{release,nightly}/<machine>/<framework>/model_support_matrix.csv` of tpu-inference,
with a column for each kind of test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, below, csv_of, files_in

_TESTS = ("UnitTest", "Accuracy/Correctness", "Benchmark")
_WORDS = (("hbm", "does_not_fit"), ("✅", "pass"), ("pass", "pass"), ("❌", "fail"), ("fail", "fail"))


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file, or of all files of a folder."""
    for file in files_in(path, "*model_support_matrix.csv"):
        machine, framework = [*file.parts[-3:-1], "", ""][:2]
        for one in csv_of(file, "Model", *_TESTS):
            for test in _TESTS:
                word = one[test].strip()
                yield Row(
                    source=f"vllm-project/tpu-inference:{below(file, 'support_matrices')}",
                    model=one["Model"].strip().strip("`"),
                    target="tpu",
                    device=one.get("Machine Type") or machine,
                    route=f"vllm-{one.get('Framework') or framework}",
                    mode=test,
                    outcome=next((name for part, name in _WORDS if part in word.lower()), "untested"),
                    detail=word,
                )


IMPORTER = Importer(about="a support matrix of vLLM's tpu-inference", rows=rows, license="Apache-2.0")
