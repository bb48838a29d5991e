"""Intel GPUs: the expected accuracy in CI of torch-xpu-ops, `.github/ci_expected_accuracy/{lts,rolling}/*.csv`, with
a column for each precision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, below, csv_of, files_in
from .dynamo import compiler_and_mode, outcome_of


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file, or of all files of a folder. The folder names the driver: lts or rolling."""
    for file in files_in(path, "*.csv"):
        compiler, mode = compiler_and_mode(file)
        driver = f"-{file.parent.name}" if file.parent.name in ("lts", "rolling") else ""
        for one in csv_of(file, "name", "float32"):
            for precision, word in one.items():
                if precision != "name" and word:
                    yield Row(
                        source=f"intel/torch-xpu-ops:{below(file, '.github')}",
                        model=one["name"],
                        target="xpu",
                        route=f"torch-{compiler}{driver}",
                        precision=precision,
                        mode=mode,
                        outcome=outcome_of(word),
                        detail=word,
                    )


IMPORTER = Importer(about="a CSV of torch-xpu-ops' expected accuracy", rows=rows, license="Apache-2.0")
