"""The published matrix holds every cell of the kept evidence, and nothing that didn't run as if it had."""

from __future__ import annotations

import pytest

from benchmarks import published_matrix
from generators.compatibility.verdict import Basis


@pytest.fixture
def qnn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_matrix, "KEPT", ("qnn",))


def test_every_cell_that_ran_is_counted_once_and_no_other(qnn_alone: None) -> None:
    found, matrix = published_matrix.published()
    cells = {line.cell_id for line in found.checks}
    _, _, *lines = published_matrix.counted(matrix).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {row[0] for row in rows} == {"qnn"}
    assert {row[1] for row in rows} <= {"measured", "expired"}
    assert sum(int(cell) for row in rows for cell in row[2:]) == len(cells) > 400


def test_nothing_that_nobody_ran_is_measured(qnn_alone: None) -> None:
    found, matrix = published_matrix.published()
    cells = {line.cell_id for line in found.checks}
    ran = {
        verdict["cell"]
        for model in matrix.to_dict()["models"].values()
        for verdict in model["compatibility"].values()
        if verdict["basis"] in (Basis.MEASURED, Basis.EXPIRED)
    }
    assert ran == cells
