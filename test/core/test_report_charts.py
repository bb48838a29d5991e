"""Positions and words of the charts in a report's page."""

from __future__ import annotations

from evidence_lines import check_line
from report_parts import verdict

from generators.compatibility.verdict import Level
from hardware.evidence.record import CheckLine, Outcome, Stage
from reports.cell_report import CellReport
from reports.html import charts


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


def test_each_target_shows_how_far_its_cells_came_and_how_near_their_errors_are():
    def of(model: str, *lines: CheckLine, level: Level = Level.HIGH) -> CellReport:
        cell = f"{model}/fill-mask/cuda/float32"
        return CellReport(verdict=verdict(cell=cell, level=level), lines=lines)

    def failed(stage: Stage | None) -> CheckLine:
        return check_line("matches_reference", outcome=Outcome.FAILED, stage=stage)

    near = check_line("matches_reference", max_rel_error=1e-6, tolerance=1e-5)
    (one,) = charts.by_target(
        [
            of("good", check_line(), near),
            of("unbuilt", failed(Stage.BUILD), level=Level.UNSUPPORTED),
            of("unexported", check_line(), failed(Stage.EXPORT), level=Level.UNSUPPORTED),
            of("stopped", check_line(), failed(None), level=Level.UNSUPPORTED),
            of(
                "wrong",
                check_line(
                    "matches_reference",
                    outcome=Outcome.FAILED,
                    stage=Stage.COMPARE,
                    max_rel_error=1e-3,
                    tolerance=1e-5,
                ),
                near,
                level=Level.LOW,
            ),
            of("elsewhere", check_line(outcome=Outcome.PASSED_ON_FALLBACK)),
            of("skipped", check_line(outcome=Outcome.SKIPPED), level=Level.UNKNOWN),
            of("without results"),
        ]
    )
    assert (one.target, one.number) == ("cuda", 7)
    assert dict(zip(charts.STEPS, one.reached, strict=True)) == {
        "built": 5,
        "exported": 4,
        "ran": 3,
        "right": 2,
        "native": 1,
    }
    assert one.levels == {"high": 2, "low": 1, "unsupported": 3, "unknown": 1}
    assert (one.measured, one.over, one.worst, one.largest) == (2, 1, "wrong/fill-mask/cuda/float32", "100 times")
    assert (one.allowed, one.beyond) == ("M57 20h0", "M100 20h0")
