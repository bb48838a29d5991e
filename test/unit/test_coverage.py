"""What counts as passed: tiny models, today's versions, every check, and nothing that wasn't run."""

from __future__ import annotations

import pytest
from coverage_evidence import BERT, GPT2, T5, VIT, refusal, seven_types, write_run

from generators.models.recipe_store import Obstacle
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.evidence.record import EDITED, Outcome
from hardware.evidence.store import read_folder
from reports.coverage.coverage_facts import RAN, Coverage, CoverageCounts, Result, Standing, by_task, grouped, percent
from reports.coverage.coverage_results import NOBODY_TRIED, coverage_here


@pytest.fixture(autouse=True)
def _types(monkeypatch):
    seven_types(monkeypatch)


@pytest.fixture
def found(tmp_path):
    """The coverage that the evidence written so far shows."""

    def ask(*targets: str) -> Coverage:
        return coverage_here(read_folder(tmp_path), detect(), targets or ("cpu",))

    return ask


def result(coverage: Coverage, name: str) -> Result:
    return next(one for one in coverage.targets[0].results if one.model_type == name)


def standings(coverage: Coverage) -> dict[str, str]:
    return {one.model_type: str(one.standing) for one in coverage.targets[0].results}


def test_every_type_has_a_standing_and_none_is_left_without_a_reason(tmp_path, monkeypatch, found):
    seven_types(
        monkeypatch,
        refusal("albert", Obstacle.NOT_DERIVED, "no factor worked"),
        refusal("electra", Obstacle.MISSING_DEPENDENCY, "ImportError: detectron2"),
    )
    write_run(tmp_path, BERT)
    write_run(tmp_path, GPT2, "matches_reference", run_id="r2", error_message="output 'logits' differs")
    write_run(tmp_path, VIT, run_id="r3", of_all={"conditions": {"recorded": "this installation"}})
    coverage = found()
    assert standings(coverage) == {
        "albert": "not_derived",
        "bert": "passed",
        "clip_text_model": "not_run",
        "electra": "excluded",
        "gpt2": "failed",
        "t5": "not_run",
        "vit": "passed_under_condition",
    }
    assert all(one.reason for one in coverage.targets[0].results if one.standing is not Standing.PASSED)
    assert result(coverage, "albert").reason == "no factor worked"
    assert result(coverage, "electra").reason == "ImportError: detectron2"
    assert result(coverage, "t5").reason == "there is no evidence"
    assert "nothing independent confirms them" in result(coverage, "vit").reason
    assert [(one.model_type, one.excluded.obstacle) for one in coverage.excluded] == [
        ("electra", "missing_dependency")
    ]


def test_both_denominators(tmp_path, monkeypatch, found):
    seven_types(monkeypatch, refusal("electra", Obstacle.NO_CLASS), refusal("albert", Obstacle.NOT_DERIVED))
    write_run(tmp_path, BERT)
    counts = CoverageCounts.of(found().targets[0].results)
    assert counts.share == "1 of the 6 types that can be built (16.7 %); of all 7 types, 14.3 %"


def test_a_failure_has_its_level_its_error_type_and_its_words(tmp_path, found):
    write_run(tmp_path, GPT2, "builds", error_message="CUDA out of memory", outcome=Outcome.OUT_OF_MEMORY)
    gpt2 = result(found(), "gpt2")
    assert (gpt2.standing, gpt2.level, gpt2.error_types) == (Standing.FAILED, "unsupported", ("out_of_memory",))
    assert "CUDA out of memory" in gpt2.reason


def test_an_error_that_nobody_knows_has_words_and_no_type(tmp_path, found):
    write_run(tmp_path, GPT2, "builds", error_message="flux capacitor")
    gpt2 = result(found(), "gpt2")
    assert gpt2.error_types == ()
    assert "flux capacitor" in gpt2.reason


def test_what_was_measured_with_other_versions_was_not_run(tmp_path, found):
    write_run(tmp_path, BERT, versions={"torch": "1.0"})
    bert = result(found(), "bert")
    assert bert.standing is Standing.NOT_RUN
    assert "measured with torch 1.0, now" in bert.reason
    assert found().targets[0].checks["builds"] == {"not_run": 4}
    assert found().targets[0].devices == ()


def test_real_widths_and_checkpoints_are_another_matter(tmp_path, found):
    for run_id, subject in (("r1", "config"), ("r2", "checkpoint")):
        write_run(tmp_path, BERT, run_id=run_id, subject=subject)
    assert result(found(), "bert").standing is Standing.NOT_RUN
    write_run(tmp_path, BERT, run_id="r0")
    assert result(found(), "bert").standing is Standing.PASSED


@pytest.mark.parametrize(
    "so",
    [
        {"outcome": Outcome.PASSED_ON_FALLBACK, "actual_target": "xpu", "substitution_reason": "not here"},
        {"outcome": Outcome.SKIPPED, "error_type": "skipped"},
        {"outcome": Outcome.NOT_RUN, "error_type": "interrupted"},
        {"conditions": {EDITED: "yes"}},
    ],
)
def test_what_proves_nothing_was_not_run(tmp_path, found, so):
    write_run(tmp_path, BERT, of_all=so)
    assert result(found(), "bert").standing is Standing.NOT_RUN


def test_one_required_check_that_did_not_pass_is_no_pass(tmp_path, found):
    write_run(tmp_path, BERT, "backward", outcome=Outcome.NOT_RUN, error_type="interrupted")
    write_run(tmp_path, GPT2, "backward", run_id="r2", outcome=Outcome.AMBIGUOUS, error_message="asserts nothing")
    assert {result(found(), name).standing for name in ("bert", "gpt2")} == {Standing.UNDECIDED}
    assert "backward" in result(found(), "bert").reason


def test_another_precision_says_nothing(tmp_path, found):
    write_run(tmp_path, BERT.replace("float32", "bfloat16"))
    assert result(found(), "bert").standing is Standing.NOT_RUN


def test_a_recipe_beats_a_refusal_and_so_does_evidence(tmp_path, monkeypatch, found):
    seven_types(
        monkeypatch,
        refusal("bert", Obstacle.DEFAULTS_FAIL),
        refusal("electra", Obstacle.MISSING_DEPENDENCY),
        refusal("albert", Obstacle.NOT_DERIVED),
    )
    for run_id, name in (("r1", "electra"), ("r2", "albert")):
        write_run(tmp_path, f"{name}/fill-mask/cpu/float32", run_id=run_id)
    write_run(tmp_path, "electra/pre-training/cpu/float32", run_id="r3")
    coverage = found()
    assert coverage.excluded == ()
    assert result(coverage, "bert").standing is Standing.NOT_RUN
    assert result(coverage, "albert").standing is Standing.PASSED


def test_what_nobody_tried_counts_as_if_it_could_be_built_and_is_said(found):
    coverage = found()
    assert coverage.untried == 3
    assert result(coverage, "albert").reason == NOBODY_TRIED
    assert CoverageCounts.of(coverage.targets[0].results).buildable == 7


def test_groups_by_architecture_trait_family_and_task(tmp_path, found):
    write_run(tmp_path, BERT)
    coverage = found()
    target = coverage.targets[0]
    encoders = grouped(coverage, target, "architecture")["encoder-only"]
    assert (encoders[Standing.PASSED], encoders.types) == (1, 4)
    assert grouped(coverage, target, "task")["fill-mask"][Standing.PASSED] == 1
    assert grouped(coverage, target, "family")["embedding"][Standing.PASSED] == 1
    assert list(grouped(coverage, target, "trait")) == ["no trait"]
    for view in ("architecture", "family", "task"):
        assert sum(counts.types for counts in grouped(coverage, target, view).values()) == 7


def test_tasks_beside_the_primary_one_are_counted_where_they_ran(tmp_path, found):
    write_run(tmp_path, BERT)
    write_run(tmp_path, "bert/question-answering/cpu/float32", run_id="r2")
    write_run(tmp_path, "albert/question-answering/cpu/float32", "builds", run_id="r3")
    coverage = found()
    counted = by_task(coverage, coverage.targets[0])
    asked = counted["question-answering"]
    assert (asked.types, asked[Standing.PASSED], asked[Standing.FAILED]) == (5, 1, 1)
    assert counted["fill-mask"][Standing.PASSED] == 1
    assert not any(counted["token-classification"][standing] for standing in RAN)
    assert CoverageCounts.of(coverage.targets[0].results)[Standing.PASSED] == 1


def test_checks_are_counted_once_each_at_their_worst(tmp_path, found):
    write_run(tmp_path, BERT)
    write_run(tmp_path, T5, "cache_matches", run_id="r2", outcome=Outcome.CRASHED)
    checks = found().targets[0].checks
    assert list(checks)[:2] == ["builds", "matches_reference"]
    assert checks["builds"] == {"passed": 2, "not_run": 2}
    assert checks["cache_matches"] == {"crashed": 1, "not_run": 1}
    assert found().targets[0].devices == ("a processor",)
    assert found().targets[0].machines == ("a-machine",)


def test_each_target_speaks_for_itself(tmp_path, found):
    write_run(tmp_path, BERT)
    cpu, simulated = found("cpu", "simulated").targets
    assert CoverageCounts.of(cpu.results)[Standing.PASSED] == 1
    assert CoverageCounts.of(simulated.results)[Standing.PASSED] == 0
    assert simulated.checks["builds"] == {"not_run": 4}


def test_an_unknown_target_is_refused_with_a_suggestion(found):
    with pytest.raises(UsageError, match="cuda"):
        found("cdua")


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(412, 456, 90.4), (412, 499, 82.6), (9998, 9999, 99.9), (1, 9999, 0.1), (0, 9, 0), (9, 9, 100), (0, 0, None)],
)
def test_a_percentage_never_rounds_to_all_or_nothing(part, whole, said):
    assert percent(part, whole) == said
