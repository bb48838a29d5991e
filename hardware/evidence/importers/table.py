"""A table of results in tab-separated columns, with or without gzip: what other importers read, written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, csv_of, files_in, refused

COLUMNS = (
    *("source", "model", "model_type", "confidence", "target"),
    *("runtime", "precision", "mode", "outcome", "detail"),
)
_WITH_VARIANTS = ("openvino",)
"""Targets whose part after the colon names a device class rather than an SKU."""


def rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table, or of all tables of a folder. A target is `name` or `name:SKU`."""
    for file in files_in(path, "*.tsv", "*.tsv.gz"):
        for number, one in enumerate(csv_of(file, *COLUMNS, delimiter="\t"), start=2):
            name, _, device = one["target"].partition(":")
            if not (name and one["source"] and one["model"] and one["outcome"]):
                raise refused(file, f"row {number} lacks a source, model, target or outcome")
            if name in _WITH_VARIANTS:
                name, device = one["target"], ""
            yield Row(
                **{key: one[key] for key in COLUMNS if key not in ("target", "runtime")},
                target=name,
                device=device,
                route=one["runtime"],
            )


IMPORTER = Importer(about="a table of results in tab-separated columns", rows=rows)
