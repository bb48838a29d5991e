"""The page of a large report packs long lists without loss, and its charts show what was measured."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import pytest
from evidence_lines import check_line, run_line
from report_parts import HOSTILE, finding, report, verdict

from hardware.evidence.record import CheckLine
from hardware.evidence.runs import History, PastRun
from reports.cell_report import CellReport
from reports.formats import report_text
from reports.html import charts
from reports.html.page import SHOWN, paged
from reports.report import Report

CELLS = [f"model{number}/fill-mask/cpu/float32" for number in range(SHOWN + 30)]


def unpacked(parcels: dict[str, Any]) -> list[str]:
    """The fragments of a list that a page holds packed."""
    return [text for parcel in parcels["parcels"] for text in json.loads(gzip.decompress(base64.b64decode(parcel)))]


def large_report() -> Report:
    facts = {"run_id": "r2", "error_message": HOSTILE, "accelerator": HOSTILE}
    lines = tuple(check_line(**facts, cell_id=cell) for cell in CELLS)
    past = tuple(
        PastRun(
            run_id=f"r{number}",
            started_at=f"2026-01-0{number}T00:00:00+00:00",
            machine=HOSTILE,
            versions={"torch": f"2.{number}", HOSTILE: HOSTILE},
            outcomes={"passed": 5, "failed": number},
        )
        for number in (1, 2)
    )
    return report(
        *(finding(cell, message=f"{HOSTILE} message {number}") for number, cell in enumerate(CELLS)),
        checks=lines,
        cells=tuple(CellReport(verdict=verdict(cell=one.cell_id), lines=(one,)) for one in lines),
        history=History(runs=past, cells={cell: ((0, {"failed": 1}), (1, {"passed": 1})) for cell in CELLS}),
        machines=(run_line(run_id="r2", machine=HOSTILE, inventory={"cpu": {"model": HOSTILE}}),),
    )


@pytest.fixture(scope="module")
def page() -> str:
    return report_text(large_report(), "html")


def packed(page: str) -> dict[str, dict[str, object]]:
    return json.loads(page.partition('id="packed">')[2].partition("</script>")[0])


def test_every_cell_verdict_and_finding_is_in_the_page_or_packed_in_it(page: str):
    data = json.loads(report_text(large_report(), "json"))
    lists = packed(page)
    assert len(unpacked(lists["cells"])) == len(data["verdicts"]) == len(CELLS)
    assert len(unpacked(lists["findings"])) == len(data["errors"]) == lists["findings"]["number"]
    for cell, drawn, row in zip(CELLS, unpacked(lists["cells"]), unpacked(lists["verdicts"]), strict=True):
        assert f'id="{cell}"' in drawn
        assert f'href="#{cell}"' in row
    assert lists["verdicts"]["index"]["text"] == CELLS
    ids = lists["findings"]["index"]["id"]
    for id_, card in zip(ids, unpacked(lists["findings"]), strict=True):
        assert f'id="finding-{id_}"' in card


def test_only_the_first_of_a_long_list_are_in_the_page(page: str):
    body = page.partition('id="packed">')[0]
    assert body.count('<article class="finding') == SHOWN
    assert body.count("<tr data-level=") == SHOWN
    assert '<details class="cell" id="model' not in body


def test_nothing_untrusted_is_markup_in_what_is_packed_or_in_the_page(page: str):
    lists = packed(page)
    texts = [page, *(text for name in lists for text in unpacked(lists[name]))]
    assert page.count("<script") == 2
    for text in texts:
        assert "<img" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert all("<script" not in text for text in texts[1:])
    assert "&lt;/script&gt;" in texts[-1]


def test_a_cell_shows_its_earlier_runs_by_date_and_version(page: str):
    first = unpacked(packed(page)["cells"])[0]
    past = re.findall(r'<li><span class="tag (\w+)">([^<]*)</span> ([^<]*)</li>', first)
    assert [(sign, words) for sign, words, _ in past] == [("passed", "1 passed"), ("failed", "1 failed")]
    assert past[0][2].startswith("2026-01-02 00:00:00 UTC")
    assert past[0][2].endswith("torch 2.1 → 2.2")


def test_a_short_list_is_whole_and_the_same_report_is_the_same_page():
    assert paged(["a"] * SHOWN, {}).rest is None
    long = paged([f"é{number}" for number in range(SHOWN + 1)], {"text": []}, size=7)
    assert unpacked(long.rest or {}) == [f"é{number}" for number in range(SHOWN + 1)]
    assert report_text(large_report(), "html") == report_text(large_report(), "html")


def test_an_error_is_left_of_the_limit_only_if_it_is_allowed():
    for error, allowed, place in (
        (1e-5, 1e-5, charts.LIMIT),
        (0.0, 1e-5, 0.0),
        (1.0, 1e-5, 100.0),
        (float("nan"), 1e-5, 100.0),
        (float("inf"), 1e-5, 100.0),
        (None, 1e-5, None),
        (1.0, None, None),
        (1.0, 0.0, None),
    ):
        assert charts.strip(error, allowed) == place, (error, allowed)


def test_errors_and_durations_over_all_cells_have_their_least_median_and_largest():
    def of(check: str, error: float) -> CheckLine:
        return check_line(check, max_rel_error=error, tolerance=1e-5)

    lines = [of("matches_reference", error) for error in (1e-8, 1e-6, 2e-5)]
    nan, measured = charts.error_spans([*lines, of("backward", float("nan")), check_line()])
    assert (nan.name, nan.words[2], nan.beyond) == ("backward", "not finite", True)
    assert (measured.words, measured.beyond) == (("0.1 %", "10 %", "2 times"), True)
    assert measured.low < measured.middle < charts.LIMIT < measured.high
    slowest = charts.duration_spans([check_line(duration_s=2.0), check_line("backward", duration_s=0.5)])
    assert [(one.name, one.words[1]) for one in slowest] == [("builds", "2 s"), ("backward", "0.5 s")]
