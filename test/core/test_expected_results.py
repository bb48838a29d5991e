"""Expected results as a CSV: written in PyTorch's words, and read back as a lock that a new pass breaks too."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import XEON, computer
from test_formats_elsewhere import report
from test_project_outcome import CELL, TODAY, line, only, run, wrong

from generators.chosen_models import choose_models, profiles_of
from generators.compatibility.verdict import Level
from generators.options import Options
from generators.project.expected_results import read_expected
from generators.project.project_finding import ProjectFindingKind, ProjectOutcome
from generators.project.project_outcome import judge_project
from generators.project.project_plan import with_lock_file
from generators.run import plan_job
from hardware.detection import detect
from hardware.errors import BrokenInput, HwCompatError, UsageError
from hardware.evidence.importers.dynamo import IMPORTER
from hardware.evidence.record import Outcome
from reports.formats import report_text
from reports.reason_text import reason_text

SLOW = line("matches_reference", Outcome.TIMEOUT, error_type="timeout")


def written(folder: Path, text: str) -> Path:
    path = folder / "inductor_huggingface_inference.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_written_is_read_back_here_and_by_the_importer_of_pytorchs_files(tmp_path: Path) -> None:
    text = report_text(report(Level.HIGH, Level.UNSUPPORTED, Level.MEDIUM, Level.UNKNOWN), "expected")
    path = written(tmp_path, text)
    words = {"bert0": "pass", "bert1": "fail_to_run", "bert2": "pass"}
    assert {one.cell.split("/")[0]: one.word for one in read_expected(path).values()} == words
    assert {row.model.split("/")[0]: row.detail for row in IMPORTER.rows(path)} == words


def judged(folder: Path, word: str, level: str, *different) -> ProjectOutcome:
    path = written(folder, f"name,accuracy,graph_breaks\n# why\n{CELL},{word},0\n")
    suites = with_lock_file(Options(expected=path), None, ())
    one = run(level, *different)
    return judge_project(suites.project, {one.verdict.cell: one}, TODAY, words=reason_text)


@pytest.mark.parametrize(
    ("word", "level", "different", "kind"),
    [
        ("pass", "high", (), ProjectFindingKind.MET),
        ("pass", "medium", (), ProjectFindingKind.MET),
        ("pass", "unsupported", (wrong(),), ProjectFindingKind.WORSE),
        ("fail_accuracy", "unsupported", (wrong(),), ProjectFindingKind.MET),
        ("fail_accuracy", "low", (wrong("backward", "unsupported_operator"),), ProjectFindingKind.WORSE),
        ("fail_to_run", "low", (wrong("backward", "unsupported_operator"),), ProjectFindingKind.MET),
        ("timeout", "unsupported", (SLOW,), ProjectFindingKind.MET),
        ("fail_to_run", "low", (), ProjectFindingKind.MET),
        ("fail_accuracy", "high", (), ProjectFindingKind.BETTER),
        ("OOM", "unknown", (), ProjectFindingKind.NOT_MET),
    ],
)
def test_only_the_expected_result_passes_and_a_new_pass_fails(tmp_path, word, level, different, kind) -> None:
    outcome = judged(tmp_path, word, level, *different)
    assert [one.kind for one in outcome.findings] == [kind]
    assert outcome.exit_code == (kind is not ProjectFindingKind.MET)


def test_the_fix_names_the_line_of_the_file(tmp_path: Path) -> None:
    better = only(judged(tmp_path, "timeout", "high"), ProjectFindingKind.BETTER)
    assert "expected timeout, measured pass" in better.message
    assert better.fix == "Change line 3 of inductor_huggingface_inference.csv to pass."


def test_a_column_for_each_precision_is_read_and_an_empty_value_expects_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "name,float32,bfloat16\nbert/fill-mask/xpu,pass,fail_accuracy\nvit/x/cpu,,OOM\n")
    assert {cell: one.word for cell, one in read_expected(path).items()} == {
        "bert/fill-mask/xpu/float32": "pass",
        "bert/fill-mask/xpu/bfloat16": "fail_accuracy",
        "vit/x/cpu/bfloat16": "OOM",
    }


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("", BrokenInput, "has no table of expected results"),
        ("name,speedup\nx,1\n", BrokenInput, "its first line must be"),
        ("name,amp_fp16\nx,pass\n", BrokenInput, "its first line must be"),
        ('name,accuracy\n"x', BrokenInput, "can't be read"),
        ("name,accuracy\n", UsageError, "expects nothing"),
        (f"name,accuracy\n{CELL},pas\n", UsageError, "line 2: 'pas' can't be expected. Did you mean 'pass'"),
        (f"name,accuracy\n{CELL},pass_due_to_skip\n", UsageError, "can't be expected"),
        (f"name,accuracy\n{CELL}\n", UsageError, "line 2: 1 values, not 2"),
        (f"name,accuracy\n{CELL},\n", UsageError, "line 2: '' can't be expected"),
        (f"name,accuracy\n{CELL},pass\n{CELL},pass\n", UsageError, "already in line 2"),
        ("name,accuracy\nbert/*/cpu/float32,pass\nx,OOM\n", UsageError, "2 problems: line 2: 'bert/*/cpu"),
    ],
)
def test_a_file_that_is_no_lock_is_refused(tmp_path: Path, text: str, kind: type[HwCompatError], said: str) -> None:
    with pytest.raises(kind) as caught:
        read_expected(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_cell_that_the_command_line_left_out_is_not_judged(tmp_path: Path) -> None:
    inventory = detect(computer(XEON))
    profiles, *_ = profiles_of(choose_models(("bert",), read_list=list), (), dims="tiny")
    suites = plan_job(profiles, ("cpu",), ("float32",), inventory)
    path = written(tmp_path, "name,accuracy\nvit/image-classification/cpu/float32,pass\nbert/ner/cpu/float32,pass\n")
    found = {
        name: with_lock_file(Options(expected=path, **asked), None, suites).left_out for name, asked in ASKED.items()
    }
    assert found["model"] == {"vit/image-classification/cpu/float32": "--model"}
    assert found["select"].keys() == {"vit/image-classification/cpu/float32", "bert/ner/cpu/float32"}


ASKED = {"model": {"models": ("bert",)}, "select": {"select": ("bert/fill-mask/*",)}}
