"""What is printed when a run is over: each fact once, and how many cells work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from reports.run_table import run_text

TINY = "tiny: operators and numerics, not size"


def cell(name: str, level: Level, *conditions: str) -> SimpleNamespace:
    """A cell of a run with what `run_text` reads of it; conditions but `TINY` are those that make it medium."""
    id_ = f"{name}/fill-mask/webgpu/float32"
    found = tuple(Reason.of("text", text=text) for text in conditions)
    reasons = tuple(reason for reason in found if reason.text("text") != TINY)
    verdict = Verdict(
        cell=id_, level=level, basis=Basis.MEASURED, reasons=reasons, conditions=found, evidence_ids=("e",)
    )
    profile = SimpleNamespace(
        recipe=SimpleNamespace(subject="tiny", parameters=1000), stands_in_for="", missing="", note="", folder=None
    )
    sealed = Verdict(cell=id_, level=Level.UNKNOWN, basis=Basis.PREDICTED)
    planned = SimpleNamespace(cell=SimpleNamespace(id=id_), profile=profile, verdict=sealed, selection=None)
    written = SimpleNamespace(planned=planned, path=Path(f"test_{name}.py"))
    return SimpleNamespace(written=written, verdict=verdict, checks=(), lines=(), taken_from="")


def said(*cells: SimpleNamespace) -> str:
    return " ".join(run_text(SimpleNamespace(cells=cells, evidence=()), Path("r.md")).split())


def test_a_caveat_is_said_once():
    text = said(cell("bert", Level.MEDIUM, TINY, "static shapes", "on a software adapter"))
    assert "Reason passes, but only: static shapes; on a software adapter Condition tiny" in text
    assert text.count("static shapes") == text.count("software adapter") == text.count(TINY) == 1


@pytest.mark.parametrize("last", [Level.MEDIUM, Level.HIGH])
def test_of_many_cells_what_all_share_is_said_once_below(last):
    some = [cell(f"m{i}", Level.MEDIUM, TINY, "static shapes") for i in range(5)]
    caps = ("static shapes",) if last is Level.MEDIUM else ()
    text = said(*some, cell("last", last, TINY, *caps))
    assert text.count(TINY) == 1
    assert f"Condition {TINY} (all cells)" in text
    counted = "6 work under conditions" if caps else "1 works, 5 work under conditions"
    assert f"Verdicts 6 cells: {counted}" in text
