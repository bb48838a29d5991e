"""From a folder of evidence to what holds now: nothing forged, thinned, cut off or out of date is called measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from current_runs import CELL, CHECKS, HIGH, OLD, ask, evidence, inventory, later, line, matrix, passed, run, says

from generators.compatibility.judge import judge, required_checks
from generators.compatibility.matrix import current_matrix
from generators.compatibility.verdict import Basis, Level
from generators.models.recipe import DERIVED
from hardware.cell import Cell
from hardware.errors import BrokenInput
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EDITED, Outcome
from reports.diagnose import diagnose
from reports.reason_text import texts

pytestmark = pytest.mark.skipif("honours_mask" not in CHECKS, reason="no recipe of bert for these transformers")


@pytest.fixture(autouse=True)
def no_recipes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


# The matrix


def test_without_evidence_levels_are_declared_or_predicted_and_never_measured():
    found = current_matrix(None, inventory(), timestamp="now")
    assert {cell.counts.measured for cells in found.families.values() for cell in cells.values()} == {0}
    bases = {verdict.basis for row in found.rows for verdict in row.verdicts.values()}
    assert Basis.MEASURED not in bases
    bert = next(row for row in found.rows if row.id == "bert/fill-mask/float32").verdicts
    assert says(bert["cpu"]) == (Level.HIGH, Basis.PREDICTED)
    assert says(bert["cuda"]) == (Level.HIGH, Basis.ASSUMED)
    assert says(bert["qnn"]) == (Level.MEDIUM, Basis.PREDICTED)
    assert bert["tpu"].level is Level.UNKNOWN


def test_what_was_measured_stands_in_the_matrix_and_counts_for_the_family():
    lines = [*passed()[1:], line("builds", Outcome.FAILED, error_message="no kernel")]
    found = matrix(evidence(run(), lines=lines))
    bert = next(row for row in found.rows if row.id == "bert/fill-mask/float32").verdicts["cuda"]
    assert says(bert) == (Level.UNSUPPORTED, Basis.MEASURED)
    counts = found.families["embedding"]["cuda"].counts
    assert (counts.supported, counts.measured) == (0, 1)


def test_what_was_measured_with_other_versions_is_shown_as_such_and_not_counted():
    found = matrix(evidence(run(), lines=passed()), inventory(torch="2.14.0"))
    bert = next(row for row in found.rows if row.id == "bert/fill-mask/float32").verdicts["cuda"]
    assert says(bert) == OLD
    assert found.families["embedding"]["cuda"].counts.measured == 0


def test_another_precision_has_rows_of_its_own_and_leaves_the_families_alone():
    int4 = "bert/fill-mask/cuda/int4"
    lines = [line("builds", Outcome.FAILED, cell_id=int4, precision="int4"), *passed()]
    runs = (run(), run(plan=run(cell_id=int4).plan))
    found = matrix(evidence(*runs, lines=lines))
    assert {"bert/fill-mask/float32", "bert/fill-mask/int4"} <= {row.id for row in found.rows}
    counts = found.families["embedding"]["cuda"].counts
    assert (counts.supported, counts.measured) == (1, 1)
    asked = matrix(evidence(*runs, lines=lines), precision="int4")
    assert asked.families["embedding"]["cuda"].counts.supported == 0


def test_other_columns_of_another_precision_are_predicted_with_all_facts_of_the_model():
    measured = "nystromformer/fill-mask/cpu/bfloat16"
    failed = line("builds", Outcome.FAILED, cell_id=measured, precision="bfloat16", requested_target="cpu")
    found = matrix(evidence(run(plan=run(cell_id=measured).plan), lines=[failed]))
    row = next(row for row in found.rows if row.id == "nystromformer/fill-mask/bfloat16").verdicts
    assert says(row["cuda"]) == (Level.UNSUPPORTED, Basis.PREDICTED)
    assert "code.padding_heard_widely" in row["cuda"].rule_ids


def test_evidence_of_what_is_no_cell_is_left_to_the_report():
    odd = evidence(run(), lines=[*passed(), line("builds", cell_id="no cell")])
    assert [verdict.cell for verdict in judge(read_latest(odd), inventory())] == [CELL.id]


# Measured, expired, unknown


def test_a_whole_run_on_these_versions_is_measured():
    assert says(ask(evidence(run(), lines=passed()))) == HIGH


def test_a_run_that_is_dated_after_now_replaces_none():
    wrong = line("matches_reference", Outcome.FAILED, started_at="2999-01-01T00:00:00+00:00", run_id="r2")
    kept = {
        one.check_name: one for one in read_latest(evidence(run(), run("r2", 2), lines=[*passed(), wrong])).checks
    }
    assert kept["matches_reference"].outcome is Outcome.PASSED


# Several runs


def test_the_newest_of_one_machine_and_accelerator_counts():
    runs = (run(), run("r2", 2))
    failed = line("builds", Outcome.FAILED)
    slow = evidence(*runs, lines=[*passed(**later(2)), line("builds", Outcome.TIMEOUT), *passed()[1:]])
    assert says(ask(slow)) == HIGH
    flaky = evidence(*runs, lines=[*passed(**later(2)), failed, *passed()[1:]])
    assert ask(flaky).level is Level.UNKNOWN, "nothing differs between the two, so that one of them was chance"
    broken = evidence(*runs, lines=[*passed(), replace(failed, **later(2)), *passed(**later(2))[1:]])
    assert ask(broken).level is Level.UNSUPPORTED


def test_that_a_device_was_absent_is_no_longer_said_once_it_measured_the_cell():
    elsewhere = {
        "outcome": Outcome.PASSED_ON_FALLBACK,
        "actual_target": "cpu",
        "accelerator": "EPYC",
        "substitution_reason": "needs a browser",
    }
    absent = [replace(one, **elsewhere) for one in passed()]
    since = evidence(run(), run("r2", 2), lines=[*absent, *passed(**later(2))])
    assert says(ask(since)) == HIGH
    assert diagnose(read_latest(since).checks) == []
    again = evidence(run(), run("r2", 2), lines=[*passed(), *(replace(one, **later(2)) for one in absent)])
    assert {one.error_type for one in diagnose(read_latest(again).checks)} == {"browser_required"}
    unreached = [replace(one, outcome=Outcome.NOT_RUN, error_type="deselected") for one in passed(**later(2))]
    assert diagnose(read_latest(evidence(run(), run("r2", 2), lines=[*absent, *unreached])).checks)


@pytest.mark.parametrize("where", [{"machine": "there"}, {"accelerator": "L4"}])
def test_a_pass_elsewhere_does_not_replace_a_failure_here(where):
    on = {"accelerator": where["accelerator"]} if "accelerator" in where else {}
    second = run("r2", 2, **({"machine": where["machine"]} if "machine" in where else {}))
    lines = [line("builds", Outcome.FAILED), *passed()[1:], *passed(**later(2, **on))]
    assert ask(evidence(run(), second, lines=lines)).level is Level.UNSUPPORTED


def test_an_interrupted_run_hides_nothing():
    cut = [
        line("builds", **later(2)),
        *(line(check, Outcome.NOT_RUN, **later(2, error_type="interrupted")) for check in CHECKS[1:4]),
    ]  # and of the others not even a line
    verdict = ask(evidence(run(), run("r2", 2), lines=[*passed(), *cut]))
    assert says(verdict) == (Level.MEDIUM, Basis.MEASURED)
    assert "put together from several runs" in texts(verdict.conditions)
    failed = [
        line("matches_reference", Outcome.FAILED),
        *(one for one in passed() if "reference" not in one.check_name),
    ]
    assert ask(evidence(run(), run("r2", 2), lines=[*failed, *cut])).level is Level.UNSUPPORTED


# Lines that nobody should believe


def test_lines_that_stand_there_twice_change_nothing():
    assert says(ask(evidence(run(), run(), lines=[*passed(), *passed()]))) == HIGH
    once = evidence(run(), lines=[line("builds")])
    twice = evidence(run(), lines=[line("builds")] * len(CHECKS))
    assert ask(twice).level is ask(once).level is Level.UNKNOWN


@pytest.mark.parametrize("seconds", list(permutations(["02", "03"])))
def test_a_pass_after_a_failure_in_one_run_does_not_undo_it(seconds):
    first, second = (f"2026-01-01T00:00:{one}Z" for one in seconds)
    both = [line("builds", Outcome.FAILED, started_at=first), line("builds", started_at=second)]
    for lines in (both, both[::-1]):
        found = evidence(run(), lines=[*lines, *passed()[1:]])
        assert ask(found).level is Level.UNSUPPORTED
        (kept,) = [one for one in read_latest(found).checks if one.check_name == "builds"]
        assert kept.outcome is Outcome.FAILED


def test_without_a_run_line_nothing_is_measured():
    verdict = ask(evidence(lines=passed()))
    assert says(verdict) == OLD
    assert "measured with versions that aren't known" in texts(verdict.reasons)
    assert ask(evidence(lines=passed()[:2])).level is Level.UNKNOWN


def test_lines_without_a_run_line_replace_none_that_have_one():
    failed = [line("builds", Outcome.FAILED), *passed()[1:]]
    assert says(ask(evidence(run(machine=""), lines=[*failed, *passed(**later(2))]))) == (
        Level.UNSUPPORTED,
        Basis.MEASURED,
    )


def test_what_no_run_planned_is_not_measured():
    other = run(cell_id="gpt2/text-generation/cuda/float32")
    assert ask(evidence(other, lines=passed())).level is Level.UNKNOWN
    assert ask(evidence(run(plan=()), lines=passed())).level is Level.UNKNOWN
    # Nor does a plan of another run vouch for it, and it hides nothing of that run.
    unplanned = passed(**later(2))
    second = run("r2", 2, plan=())
    assert ask(evidence(run(), second, lines=unplanned)).level is Level.UNKNOWN
    failed = [line("builds", Outcome.FAILED), *passed()[1:]]
    assert ask(evidence(run(), second, lines=[*failed, *unplanned])).level is Level.UNSUPPORTED


@pytest.mark.parametrize("missing", CHECKS)
def test_a_thinned_plan_never_reaches_high(missing):
    thin = run(checks=tuple(check for check in CHECKS if check != missing))
    without = [one for one in passed() if one.check_name != missing]
    verdict = ask(evidence(thin, lines=without))
    assert verdict.level is Level.UNKNOWN
    assert any("the plan lacks checks" in reason and missing in reason for reason in texts(verdict.reasons))
    assert ask(evidence(thin, lines=passed())).level is Level.UNKNOWN


def test_a_plan_may_have_more_checks_and_then_all_of_them_count():
    more = run(checks=(*CHECKS, "my_own"))
    assert ask(evidence(more, lines=passed())).level is Level.UNKNOWN
    assert says(ask(evidence(more, lines=[*passed(), line("my_own")]))) == HIGH
    assert ask(evidence(more, lines=[*passed(), line("my_own", Outcome.FAILED)])).level is Level.LOW


def test_an_edited_suite_concludes_nothing():
    verdict = ask(evidence(run(), lines=passed(conditions={EDITED: "by hand"})))
    assert verdict.level is Level.UNKNOWN
    assert any("edited by hand" in reason for reason in texts(verdict.reasons))


# What a cell has to have


def test_the_checks_of_a_cell_come_from_its_recipe_and_its_target():
    def of(cell: str) -> set[str]:
        return set(required_checks(Cell.parse(cell)))

    assert {"generates_like_reference", "cache_matches"} <= of("gpt2/text-generation/cuda/float32")
    assert "honours_mask" not in of("vit/image-classification/cuda/float32")
    assert "backward" not in of("vit/image-classification/openvino/float32")
    core = {"builds", "matches_reference", "matches_recorded", "runs_natively"}
    for unknown in ("some-checkpoint/fill-mask/cuda/float32", "odd@name/fill-mask/qnn/float32"):
        assert core <= of(unknown)
        assert "honours_mask" not in of(unknown)


def test_a_recipe_that_cannot_be_read_is_said(tmp_path):
    folder = tmp_path / "cache" / DERIVED
    folder.mkdir(parents=True)
    from generators.models.catalog import installed_version

    (folder / installed_version()).mkdir()
    (folder / installed_version() / "mra.json").write_text("{", encoding="utf-8")
    with pytest.raises(BrokenInput, match="not a recipe"):
        required_checks(Cell.parse("mra/fill-mask/cpu/float32"))


def test_a_good_device_does_not_hide_its_bad_twin():
    bad = [line(check, requested_target="cuda:0", outcome=Outcome.FAILED) for check in CHECKS[:1]] + [
        line(check, requested_target="cuda:0") for check in CHECKS[1:]
    ]
    good = [line(check, requested_target="cuda:1", **later(2)) for check in CHECKS]
    found = evidence(run(), run("r2", 2), lines=[*bad, *good])
    assert ask(found).level is not Level.HIGH
