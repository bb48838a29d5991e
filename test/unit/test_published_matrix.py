"""The published matrix holds every cell of the kept evidence, and nothing that didn't run as if it had."""

from __future__ import annotations

import pytest

from benchmarks import published_matrix
from benchmarks.calibration import KEPT
from generators.compatibility.matrix import Matrix
from generators.compatibility.verdict import Basis
from hardware.basic_detection import inventory_here


@pytest.fixture(scope="module")
def qnn_alone() -> tuple[set[str], Matrix]:
    """The cells whose evidence is kept, and the matrix from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_matrix, "kept_places", lambda: [KEPT / "qnn.jsonl.gz"])
        found, matrix = published_matrix.published(inventory_here())
    return {line.cell_id for line in found.checks}, matrix


def test_every_cell_that_ran_is_counted_once_and_no_other(qnn_alone: tuple[set[str], Matrix]) -> None:
    cells, matrix = qnn_alone
    _, _, *lines = published_matrix.counted(matrix).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {row[0] for row in rows} == {"qnn"}
    assert {row[1] for row in rows} <= {"measured", "expired"}
    assert sum(int(cell) for row in rows for cell in row[2:]) == len(cells) > 400


def test_nothing_that_nobody_ran_is_measured(qnn_alone: tuple[set[str], Matrix]) -> None:
    cells, matrix = qnn_alone
    ran = {
        verdict["cell"]
        for model in matrix.to_dict()["models"].values()
        for verdict in model["compatibility"].values()
        if verdict["basis"] in (Basis.MEASURED, Basis.EXPIRED)
    }
    assert ran == cells
