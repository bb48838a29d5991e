"""The table after a run has each fact once, and says how many cells work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

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
    predicted = Verdict(cell=id_, level=Level.UNKNOWN, basis=Basis.PREDICTED)
    planned = SimpleNamespace(cell=SimpleNamespace(id=id_), profile=profile, verdict=predicted, selection=None)
    written = SimpleNamespace(planned=planned, path=Path(f"test_{name}.py"))
    return SimpleNamespace(written=written, verdict=verdict, checks=(), lines=(), taken_from="")


def said(*cells: SimpleNamespace) -> str:
    return " ".join(run_text(SimpleNamespace(cells=cells, evidence=()), Path("r.md")).split())


def test_a_caveat_is_printed_once():
    text = said(cell("bert", Level.MEDIUM, TINY, "static shapes", "on a software adapter"))
    assert "Reason passes, but only: static shapes; on a software adapter Condition tiny" in text
    assert text.count("static shapes") == text.count("software adapter") == text.count(TINY) == 1


def test_a_caveat_that_all_of_many_cells_share_is_printed_once_below():
    some = [cell(f"m{i}", Level.MEDIUM, TINY, "static shapes") for i in range(5)]
    for last, caps, counted in (
        (Level.MEDIUM, ("static shapes",), "6 work under conditions"),
        (Level.HIGH, (), "1 works, 5 work under conditions"),
    ):
        text = said(*some, cell("last", last, TINY, *caps))
        assert text.count(TINY) == 1
        assert f"Condition {TINY} (all cells)" in text
        assert f"Verdicts 6 cells: {counted}" in text
