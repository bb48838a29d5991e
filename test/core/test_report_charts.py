"""Positions and words of the charts in a report's page."""

from __future__ import annotations

from evidence_lines import check_line

from hardware.evidence.record import CheckLine
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
