"""Coverage counts a type as passed if all checks of its tiny model passed with the versions of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage_evidence import BERT, GPT2, T5, VIT, refusal, seven_types, write_run

from generators.models.recipe_store import Obstacle
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.evidence.record import EDITED, Outcome
from hardware.evidence.store import read_folder
from reports.coverage.coverage_facts import RAN, Coverage, CoverageCounts, CoverageStatus, Result, by_task, grouped
from reports.coverage.coverage_results import NOBODY_TRIED, coverage_here

CELLS = {"bert": BERT, "gpt2": GPT2, "t5": T5, "vit": VIT}


@pytest.fixture(autouse=True)
def _types(monkeypatch):
    seven_types(monkeypatch)


def coverage_of(folder: Path, *targets: str) -> Coverage:
    return coverage_here(read_folder(folder), detect(), targets or ("cpu",))


def results_of(coverage: Coverage) -> dict[str, Result]:
    return {one.model_type: one for one in coverage.targets[0].results}


def standings(coverage: Coverage) -> dict[str, str]:
    return {name: str(one.standing) for name, one in results_of(coverage).items()}


def test_every_type_has_a_standing_and_each_but_a_pass_has_a_reason(tmp_path, monkeypatch):
    seven_types(
        monkeypatch,
        refusal("albert", Obstacle.NOT_DERIVED, "no factor worked"),
        refusal("electra", Obstacle.MISSING_DEPENDENCY, "ImportError: detectron2"),
    )
    write_run(tmp_path, BERT)
    write_run(tmp_path, GPT2, "matches_reference", run_id="r2", error_message="output 'logits' differs")
    write_run(tmp_path, VIT, run_id="r3", of_all={"conditions": {"recorded": "this installation"}})
    coverage = coverage_of(tmp_path)
    assert standings(coverage) == {
        "albert": "not_derived",
        "bert": "passed",
        "clip_text_model": "not_run",
        "electra": "excluded",
        "gpt2": "failed",
        "t5": "not_run",
        "vit": "passed_under_condition",
    }
    reasons = {name: one.reason for name, one in results_of(coverage).items()}
    assert [name for name, reason in reasons.items() if not reason and name != "bert"] == []
    assert reasons["albert"] == "no factor worked"
    assert reasons["electra"] == "ImportError: detectron2"
    assert reasons["t5"] == "there is no evidence"
    assert "not confirmed independently" in reasons["vit"]
    assert [(one.model_type, one.excluded.obstacle) for one in coverage.excluded] == [
        ("electra", "missing_dependency")
    ]
    counts = CoverageCounts.of(coverage.targets[0].results)
    assert counts.share == "1 of the 6 types that can be built (16.7 %); of all 7 types, 14.3 %"


def test_a_failure_has_its_level_its_error_type_and_its_words(tmp_path):
    write_run(tmp_path, GPT2, "builds", error_message="CUDA out of memory", outcome=Outcome.OUT_OF_MEMORY)
    write_run(tmp_path, BERT, "builds", run_id="r2", error_message="flux capacitor")
    found = results_of(coverage_of(tmp_path))
    gpt2, bert = found["gpt2"], found["bert"]
    assert (gpt2.standing, gpt2.level, gpt2.error_types) == (CoverageStatus.FAILED, "unsupported", ("out_of_memory",))
    assert "CUDA out of memory" in gpt2.reason
    assert bert.error_types == ()
    assert "flux capacitor" in bert.reason


def test_what_proves_nothing_counts_as_not_run(tmp_path):
    fallback = {"actual_target": "xpu", "substitution_reason": "not here"}
    for cell, values in (
        (BERT, {"outcome": Outcome.PASSED_ON_FALLBACK, **fallback}),
        (GPT2, {"outcome": Outcome.SKIPPED, "error_type": "skipped"}),
        (T5, {"outcome": Outcome.NOT_RUN, "error_type": "interrupted"}),
        (VIT, {"conditions": {EDITED: "yes"}}),
    ):
        write_run(tmp_path / "nothing", cell, run_id=cell[:2], of_all=values)
    write_run(tmp_path / "other", BERT, versions={"torch": "1.0"})
    write_run(tmp_path / "other", GPT2.replace("float32", "bfloat16"), run_id="r2")
    write_run(tmp_path / "other", T5, run_id="r3", subject="config")
    write_run(tmp_path / "other", VIT, run_id="r4", subject="checkpoint")
    nothing, other = (coverage_of(tmp_path / name) for name in ("nothing", "other"))
    for coverage in (nothing, other):
        assert {name: standings(coverage)[name] for name in CELLS} == dict.fromkeys(CELLS, "not_run")
    assert "measured with torch 1.0, now" in results_of(other)["bert"].reason
    assert other.targets[0].checks["builds"] == {"not_run": 4}
    assert other.targets[0].devices == ()


def test_one_required_check_without_a_decision_is_no_pass(tmp_path):
    write_run(tmp_path, BERT, "backward", outcome=Outcome.NOT_RUN, error_type="interrupted")
    write_run(tmp_path, GPT2, "backward", run_id="r2", outcome=Outcome.AMBIGUOUS, error_message="asserts nothing")
    found = results_of(coverage_of(tmp_path))
    assert found["bert"].standing is found["gpt2"].standing is CoverageStatus.UNDECIDED
    assert "backward" in found["bert"].reason


def test_a_recipe_beats_a_refusal_and_so_does_evidence(tmp_path, monkeypatch):
    untried = coverage_of(tmp_path)
    assert untried.untried == 3
    assert results_of(untried)["albert"].reason == NOBODY_TRIED
    assert CoverageCounts.of(untried.targets[0].results).buildable == 7
    seven_types(
        monkeypatch,
        refusal("bert", Obstacle.DEFAULTS_FAIL),
        refusal("electra", Obstacle.MISSING_DEPENDENCY),
        refusal("albert", Obstacle.NOT_DERIVED),
    )
    cells = ("electra/fill-mask/cpu/float32", "albert/fill-mask/cpu/float32", "electra/pre-training/cpu/float32")
    for number, cell in enumerate(cells):
        write_run(tmp_path, cell, run_id=f"r{number}")
    coverage = coverage_of(tmp_path)
    assert coverage.excluded == ()
    assert results_of(coverage)["bert"].standing is CoverageStatus.NOT_RUN
    assert results_of(coverage)["albert"].standing is CoverageStatus.PASSED


def test_groups_tasks_and_checks_are_counted(tmp_path):
    write_run(tmp_path, BERT)
    write_run(tmp_path, "bert/question-answering/cpu/float32", run_id="r2")
    write_run(tmp_path, "albert/question-answering/cpu/float32", "builds", run_id="r3")
    write_run(tmp_path, T5, "cache_matches", run_id="r4", outcome=Outcome.CRASHED)
    coverage = coverage_of(tmp_path, "cpu", "simulated")
    cpu, simulated = coverage.targets
    encoders = grouped(coverage, cpu, "architecture")["encoder-only"]
    assert (encoders[CoverageStatus.PASSED], encoders.types) == (1, 4)
    assert grouped(coverage, cpu, "family")["embedding"][CoverageStatus.PASSED] == 1
    assert list(grouped(coverage, cpu, "trait")) == ["no trait"]
    for view in ("architecture", "family", "task"):
        assert sum(counts.types for counts in grouped(coverage, cpu, view).values()) == 7
    assert grouped(coverage, cpu, "task")["fill-mask"][CoverageStatus.PASSED] == 1
    counted = by_task(coverage, cpu)
    answers = counted["question-answering"]
    assert (answers.types, answers[CoverageStatus.PASSED], answers[CoverageStatus.FAILED]) == (5, 1, 1)
    assert counted["fill-mask"][CoverageStatus.PASSED] == 1
    assert not any(counted["token-classification"][standing] for standing in RAN)
    assert list(cpu.checks)[:2] == ["builds", "matches_reference"]
    assert cpu.checks["builds"] == {"passed": 2, "not_run": 2}
    assert cpu.checks["cache_matches"] == {"crashed": 1, "not_run": 1}
    assert (cpu.devices, cpu.machines) == (("a device",), ("a-machine",))
    assert CoverageCounts.of(cpu.results)[CoverageStatus.PASSED] == 1
    assert CoverageCounts.of(simulated.results)[CoverageStatus.PASSED] == 0
    assert simulated.checks["builds"] == {"not_run": 4}
    with pytest.raises(UsageError, match="cuda"):
        coverage_of(tmp_path, "cdua")
