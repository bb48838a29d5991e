"""Parts of reports with defaults: findings, verdicts, reports, and hostile text."""

from __future__ import annotations

from evidence_lines import BERT, check_line

from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.evidence.record import Outcome
from reports.diagnose import diagnose
from reports.finding import Finding, Remedy, Severity, worst_first
from reports.report import Component, Report
from reports.stack import StackResult

HOSTILE = (
    "a|b `c` </script><script>document.title='owned'</script><img src=x onerror=alert(1)> \"'{{ 7*7 }}\n# head\n"
    "::error::x\r\n::set-output name=a::b [x](http://evil.example) @user {0} %0A ``` <!-- "
    "\u2028\x1b[31m \x9b2J \u202e"
)
"""Text that is a command to a browser, a terminal, a CI server or a reader of Markdown."""


def finding(*cells: str, **changes: object) -> Finding:
    """Return a finding of wrong numbers in these cells, or in none."""
    values = {
        "hardware_type": "cpu",
        "error_type": "numerical_mismatch",
        "severity": Severity.ERROR,
        "message": "off by 0.5",
        "component": "compatibility_test",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "cells": cells,
        "checks": ("backward",) if cells else (),
    }
    return Finding(**{**values, **changes})


def hostile_finding(text: str = HOSTILE, **changes: object) -> Finding:
    """Return a finding with this text in each field that takes one."""
    fields = ("hardware_type", "error_type", "message", "component", "model_name", "traceback")
    remedies = (Remedy(do=text), Remedy(do=f"`{text}`"))
    return finding(**{**dict.fromkeys(fields, text), "remedies": remedies, **changes})


def report(*findings: Finding, **changes: object) -> Report:
    """Return a report of these findings, the worst first."""
    return Report(**{"timestamp": "2026-01-02T00:00:00+00:00", "findings": worst_first(findings), **changes})


def verdict(level: Level = Level.HIGH, cell: str = BERT, **changes: object) -> Verdict:
    """Return a measured verdict."""
    return Verdict(cell=cell, level=level, **{"basis": Basis.MEASURED, "evidence_ids": ("e",), **changes})


def because(text: str) -> tuple[Reason, ...]:
    """Return a reason with text that wasn't made safe."""
    return (Reason("text", (("text", text),)),)


def report_of_each_outcome(text: str = "plain") -> Report:
    """A report with one check of each outcome and with findings of the machine; `text` is in all of them."""
    fallback = {"cell_id": "bert/fill-mask/cuda/float32", "substitution_reason": "no CUDA device can be used"}
    checks = (
        check_line("builds"),
        check_line("a", Outcome.FAILED, error_type="unknown", error_message=text, traceback=text),
        check_line("b", Outcome.CRASHED, error_type="crash", error_message="ended by SIGSEGV"),
        check_line("c", Outcome.TIMEOUT, error_type="timeout", error_message="no sign of life for 5 s"),
        check_line("d", Outcome.OUT_OF_MEMORY, error_type="out_of_memory", error_message="no memory"),
        check_line("e", Outcome.AMBIGUOUS, error_type="ambiguous", error_message="two tokens are as good"),
        check_line("f", Outcome.SKIPPED, error_type="not_applicable", error_message="cannot save"),
        check_line("g", Outcome.NOT_RUN, error_type="not_reached", error_message="ended before it"),
        check_line("h", Outcome.PASSED_ON_FALLBACK, **fallback, actual_target="cpu"),
    )
    machine = {"hardware_type": "cpu", "error_type": "component_failed", "remedies": (Remedy(do=text),)}
    return report(
        *diagnose(checks),
        hostile_finding(text, **machine),
        components=(Component(name="torch", state="missing", reason=text),),
        checks=checks,
        stack=(StackResult(target="cpu", state="failed", reason=text),),
    )
