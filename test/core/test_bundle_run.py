"""What a bundle's run.py prints and returns, over a session with made-up results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from evidence_lines import check_line

from hardware.cell import Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.testing import bundle_runner
from hardware.testing.suite_file import SuiteFile

BERT, GPT2 = "bert/fill-mask/cpu/float32", "gpt2/text-generation/cuda/float32"
ELSEWHERE = {"cell_id": GPT2, "actual_target": "cpu", "substitution_reason": "no driver"}
ON_FALLBACK = check_line("builds", Outcome.PASSED_ON_FALLBACK, **ELSEWHERE)
Run = Callable[..., int]


def carried(cell: str, *, required: bool = False) -> bundle_runner.Carried:
    facts = {"subject": "tiny", "checks": ("builds", "matches_reference"), "suite_hash": "h"}
    suite = SuiteFile(path=Path("test_x.py"), cell=Cell.parse(cell), **facts)
    return bundle_runner.Carried(suite=suite, verdict={"level": "high"}, required=required)


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


def test_each_suite_is_reported_by_its_own_lines(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"cell_id": GPT2, "error_message": "off by far\nand more"}
    failed = check_line("matches_reference", Outcome.FAILED, **wrong)
    lines = (check_line(), check_line("matches_reference"), failed)
    assert run((carried(BERT), carried(GPT2)), lines) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{BERT}  2 passed of 2"
    assert shown[1:3] == [f"{GPT2}  1 failed of 2", "  matches_reference failed: off by far"]
    assert shown[3].startswith("Evidence")


def test_what_was_cut_off_is_reported_with_the_next_step(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run((carried(BERT),), (check_line(),), interrupted=True) == 2
    shown = capsys.readouterr()
    assert "1 passed of 2" in shown.out
    assert "error: interrupted; continue with --resume" in shown.err


def test_a_substitute_is_no_success_if_its_device_was_named(run: Run) -> None:
    assert run((carried(GPT2),), (ON_FALLBACK,)) == 0
    assert run((carried(GPT2, required=True),), (ON_FALLBACK,)) == 1
    assert run((carried(GPT2, required=True),), (ON_FALLBACK,), "--allow-fallback") == 0
    assert run((carried(GPT2),), (ON_FALLBACK,), "--device", "cuda") == 1
    assert run((carried(BERT, required=True), carried(GPT2)), (check_line(), ON_FALLBACK)) == 0


def test_what_is_missing_is_named_and_nothing_runs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run((carried(BERT),), (), missing=("transformers",)) == 4
    assert "transformers isn't installed" in capsys.readouterr().err
    assert run((carried(BERT),), (), "--list", missing=("transformers",)) == 0
    assert capsys.readouterr().out == f"{BERT}\n"
    assert run((carried(BERT), carried(GPT2)), (), "--device", "openvino") == 5
    assert "its suites are for cpu, cuda" in capsys.readouterr().err
