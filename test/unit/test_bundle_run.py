"""What a bundle's run.py says and returns, over a session that stands in for the machine it was carried to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing import bundle_runner
from hardware.testing.suite_file import SuiteFile

BERT, GPT2 = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cuda/float32"
CHECKS = ("builds", "matches_reference")


def carried(cell: str, *, required: bool = False) -> bundle_runner.Carried:
    suite = SuiteFile(path=Path("test_x.py"), cell=Cell.parse(cell), subject="tiny", checks=CHECKS, suite_hash="h")
    return bundle_runner.Carried(suite=suite, verdict={"level": "high"}, required=required)


def line(cell: str, check: str = "builds", outcome: Outcome = Outcome.PASSED, **changes: Any) -> CheckLine:
    model, task, target, precision = cell.split("/")
    return CheckLine(
        run_id="r",
        cell_id=cell,
        check_name=check,
        outcome=outcome,
        subject="tiny",
        requested_target=target,
        actual_target=changes.pop("actual_target", target),
        precision=precision,
        model=model,
        task=task,
        suite_hash="h",
        started_at="2026-01-01",
        duration_s=0.1,
        **changes,
    )


def on_fallback(cell: str) -> CheckLine:
    return line(cell, outcome=Outcome.PASSED_ON_FALLBACK, actual_target="cpu", substitution_reason="no driver")


Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path))
    monkeypatch.setenv("HWCOMPAT_DEVICES", "")

    def ran(
        suites: tuple[bundle_runner.Carried, ...],
        lines: tuple[CheckLine, ...],
        *arguments: str,
        interrupted: bool = False,
        missing: tuple[str, ...] = (),
    ) -> int:
        session = SimpleNamespace(run_id="r", interrupted=interrupted, run_of=lambda cell: "r")
        monkeypatch.setattr(bundle_runner, "read_bundle", lambda root: suites)
        monkeypatch.setattr(bundle_runner, "missing_packages", lambda: missing)
        monkeypatch.setattr(bundle_runner, "run_session", lambda *_, **__: session)
        monkeypatch.setattr("hardware.detection.detect", lambda: None)
        monkeypatch.setattr(bundle_runner, "read_cells", lambda *_, **__: SimpleNamespace(checks=lines))
        return bundle_runner.main(tmp_path, arguments)

    return ran


def test_each_suite_is_told_by_its_own_lines(run: Run, capsys):
    failed = line(GPT2, "matches_reference", Outcome.FAILED, error_message="off by far\nand more")
    assert run((carried(BERT), carried(GPT2)), (line(BERT), line(BERT, "matches_reference"), failed)) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{BERT}  2 passed of 2"
    assert said[1:3] == [f"{GPT2}  1 failed of 2", "  matches_reference failed: off by far"]
    assert said[3].startswith("Evidence")


def test_what_was_cut_off_is_said_with_the_next_step(run: Run, capsys):
    assert run((carried(BERT),), (line(BERT),), interrupted=True) == 2
    said = capsys.readouterr()
    assert "1 passed of 2" in said.out
    assert "error: interrupted; --resume goes on from here" in said.err


@pytest.mark.parametrize(
    ("required", "arguments", "code"),
    [(False, (), 0), (True, (), 1), (True, ("--allow-fallback",), 0), (False, ("--device", "cuda"), 1)],
)
def test_a_substitute_is_no_success_where_its_device_was_named(run: Run, required, arguments, code):
    assert run((carried(GPT2, required=required),), (on_fallback(GPT2),), *arguments) == code


def test_a_substitute_of_one_that_was_not_asked_for_fails_no_other(run: Run):
    assert run((carried(BERT, required=True), carried(GPT2)), (line(BERT), on_fallback(GPT2))) == 0


def test_a_package_that_is_missing_is_named_and_nothing_runs(run: Run, capsys):
    assert run((carried(BERT),), (), missing=("transformers",)) == 4
    assert "transformers isn't installed" in capsys.readouterr().err
    assert run((carried(BERT),), (), "--list", missing=("transformers",)) == 0
    assert capsys.readouterr().out == f"{BERT}\n"


def test_a_device_that_the_bundle_has_no_suite_for_is_refused_with_those_it_has(run: Run, capsys):
    assert run((carried(BERT), carried(GPT2)), (), "--device", "openvino") == 5
    assert "its suites are for cpu, cuda" in capsys.readouterr().err
