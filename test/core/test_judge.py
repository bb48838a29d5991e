"""From evidence to verdicts: only what ran here, whole, as planned and with today's versions is called measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from current_runs import (
    CELL,
    CHECKS,
    DRIVER,
    HIGH,
    OLD,
    PACKAGES,
    ask,
    evidence,
    inventory,
    judged,
    later,
    line,
    passed,
    run,
    says,
)

from generators.compatibility.judge import judge
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Basis, Level
from generators.models.catalog import installed_version
from generators.models.recipe import DERIVED
from hardware.backends.base import BaseBackend
from hardware.cell import Cell
from hardware.errors import BrokenInput
from hardware.evidence import versions
from hardware.evidence.latest import read_latest
from hardware.evidence.record import EDITED, Outcome
from hardware.evidence.revisions import checker_versions
from hardware.evidence.store import Evidence
from hardware.testing.checks import call_checks
from reports.diagnose import diagnose
from reports.reason_text import texts

pytestmark = pytest.mark.skipif("honours_mask" not in CHECKS, reason="no recipe of bert for these transformers")

FAILED, UNKNOWN, UNSUPPORTED = Outcome.FAILED, Level.UNKNOWN, Level.UNSUPPORTED


@pytest.fixture(autouse=True)
def no_recipes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


def broken(**changes: object):
    """A failure of one check, and passes of the others."""
    return [line("builds", FAILED, **changes), *passed(**changes)[1:]]


def two(*lines, second=None) -> Evidence:
    """Results of the runs `r1` and, a day later, `r2`."""
    return evidence(run(), second or run("r2", 2), lines=list(lines))


def check_levels(scenarios: dict[str, tuple[Evidence, object]], **how: object):
    """Assert the level, or level and basis, of each scenario; return the verdicts."""
    verdicts = judged({name: found for name, (found, _) in scenarios.items()}, **how)
    wrong = {
        name: says(verdicts[name])
        for name, (_, wanted) in scenarios.items()
        if wanted not in (verdicts[name].level, says(verdicts[name]))
    }
    assert wrong == {}
    return verdicts


def test_the_newest_result_of_one_machine_and_accelerator_counts():
    new, second = passed(**later(2)), run("r2", 2, machine="there")
    absent = {"outcome": Outcome.PASSED_ON_FALLBACK, "actual_target": "cpu", "accelerator": "EPYC"}
    fallback = [replace(one, **absent, substitution_reason="needs a browser") for one in passed()]
    cut = [
        line("builds", **later(2)),
        *(line(check, Outcome.NOT_RUN, **later(2, error_type="interrupted")) for check in CHECKS[1:4]),
    ]  # without lines of the other checks
    wrong = [line("matches_reference", FAILED), *(one for one in passed() if one.check_name != "matches_reference")]
    twin = [replace(one, requested_target="cuda:1") for one in new]
    verdicts = check_levels(
        {
            "whole": (evidence(run(), lines=passed()), HIGH),
            "slow once": (two(*new, line("builds", Outcome.TIMEOUT), *passed()[1:]), HIGH),
            "failed once, with nothing that differs": (two(*new, *broken()), UNKNOWN),
            "fails now": (two(*broken(**later(2)), *passed()), UNSUPPORTED),
            "passed on another machine": (two(*broken(), *new, second=second), UNSUPPORTED),
            "passed on another accelerator": (two(*broken(), *passed(**later(2, accelerator="L4"))), UNSUPPORTED),
            "passed on another device of the target": (two(*broken(requested_target="cuda:0"), *twin), UNSUPPORTED),
            "absent before": (two(*fallback, *new), HIGH),
            "interrupted after passes": (two(*passed(), *cut), (Level.MEDIUM, Basis.MEASURED)),
            "interrupted after a failure": (two(*wrong, *cut), UNSUPPORTED),
        }
    )
    assert "combined from several runs" in texts(verdicts["interrupted after passes"].conditions)


def test_a_device_that_was_absent_is_reported_until_it_measured_the_cell():
    absent = {"outcome": Outcome.PASSED_ON_FALLBACK, "actual_target": "cpu", "accelerator": "EPYC"}
    fallback = [replace(one, **absent, substitution_reason="needs a browser") for one in passed()]
    assert diagnose(read_latest(two(*fallback, *passed(**later(2)))).checks) == []
    again = two(*passed(), *(replace(one, **later(2)) for one in fallback))
    assert {one.error_type for one in diagnose(read_latest(again).checks)} == {"browser_required"}
    unreached = [replace(one, outcome=Outcome.NOT_RUN, error_type="deselected") for one in passed(**later(2))]
    assert diagnose(read_latest(two(*fallback, *unreached)).checks)


def test_a_run_that_is_dated_after_now_replaces_none():
    wrong = line("matches_reference", FAILED, started_at="2999-01-01T00:00:00+00:00", run_id="r2")
    (kept,) = [one for one in read_latest(two(*passed(), wrong)).checks if one.check_name == "matches_reference"]
    assert kept.outcome is Outcome.PASSED


def test_repeated_lines_change_nothing_and_a_failure_outweighs_a_pass_of_its_run():
    scenarios = {
        "all twice": (evidence(run(), run(), lines=[*passed(), *passed()]), HIGH),
        "one check": (evidence(run(), lines=[line("builds")]), UNKNOWN),
        "one check many times": (evidence(run(), lines=[line("builds")] * len(CHECKS)), UNKNOWN),
    }
    for seconds in (("02", "03"), ("03", "02")):
        first, second = (f"2026-01-01T00:00:{one}Z" for one in seconds)
        both = [line("builds", FAILED, started_at=first), line("builds", started_at=second)]
        for lines in (both, both[::-1]):
            found = evidence(run(), lines=[*lines, *passed()[1:]])
            scenarios[f"failure at {lines[0].started_at}, {lines[0].outcome}"] = (found, UNSUPPORTED)
    (kept,) = [one for one in read_latest(found).checks if one.check_name == "builds"]
    assert kept.outcome is FAILED
    check_levels(scenarios)


def test_without_a_run_line_or_a_plan_nothing_is_measured():
    other = run(cell_id="gpt2/text-generation/cuda/float32")
    unplanned, second = passed(**later(2)), run("r2", 2, plan=())
    verdicts = check_levels(
        {
            "no run line": (evidence(lines=passed()), OLD),
            "no run line, two checks": (evidence(lines=passed()[:2]), UNKNOWN),
            "no run line after a failure": (
                evidence(run(machine=""), lines=[*broken(), *passed(**later(2))]),
                (UNSUPPORTED, Basis.MEASURED),
            ),
            "a plan of another cell": (evidence(other, lines=passed()), UNKNOWN),
            "an empty plan": (evidence(run(plan=()), lines=passed()), UNKNOWN),
            "an empty plan beside a run": (two(*unplanned, second=second), UNKNOWN),
            "an empty plan after a failure": (two(*broken(), *unplanned, second=second), UNSUPPORTED),
        }
    )
    assert "measured with unknown versions" in texts(verdicts["no run line"].reasons)


def test_a_check_that_was_added_later_is_stated_and_not_required():
    checks = tuple(one for one in CHECKS if one != "batch_invariance")
    lines = [one for one in passed() if one.check_name != "batch_invariance"]
    known = ask(evidence(run(checks=checks), lines=lines))
    assert known.level is UNKNOWN
    assert any("batch_invariance" in reason for reason in texts(known.reasons))
    before = {name: value for name, value in run().versions.items() if not name.endswith("batch_invariance")}
    older = ask(evidence(run(checks=checks, versions=before), lines=lines))
    assert (older.level, older.basis) == HIGH
    assert "measured before checks were added: batch_invariance" in texts(older.conditions)


def test_half_precision_says_what_float32_showed():
    half = CELL.id.replace("float32", "float16")
    own = [replace(one, cell_id=half, precision="float16") for one in passed(tolerance=1e-3)]
    for lines, plan, said in (
        ((), (), "not measured in float32 on this target"),
        (passed(), run().plan, "left to float32 on this target (high, measured)"),
    ):
        both = run(plan=(*plan, replace(run().plan[0], cell_id=half)))
        (found,) = judge(read_latest(evidence(both, lines=[*own, *lines])), inventory(), cells=[half])
        assert any(said in text for text in texts(found.conditions)), found


def test_the_checks_of_a_plan_and_those_that_the_cell_has_to_have_all_count():
    always = [check for check in CHECKS if check not in call_checks()]  # the judged models differ in the others
    thin = {check: run(checks=tuple(one for one in CHECKS if one != check)) for check in always}
    without = {check: [one for one in passed() if one.check_name != check] for check in always}
    more, edited = run(checks=(*CHECKS, "my_own")), passed(conditions={EDITED: "by hand"})
    verdicts = check_levels(
        {
            **{check: (evidence(thin[check], lines=without[check]), UNKNOWN) for check in always},
            **{f"{check} ran unplanned": (evidence(thin[check], lines=passed()), UNKNOWN) for check in always},
            "one more that did not run": (evidence(more, lines=passed()), UNKNOWN),
            "one more that passed": (evidence(more, lines=[*passed(), line("my_own")]), HIGH),
            "one more that failed": (evidence(more, lines=[*passed(), line("my_own", FAILED)]), Level.LOW),
            "an edited suite": (evidence(run(), lines=edited), UNKNOWN),
        }
    )
    assert any("edited by hand" in reason for reason in texts(verdicts["an edited suite"].reasons))
    for check in always:
        reasons = texts(verdicts[check].reasons)
        assert any("the plan lacks required checks" in reason and check in reason for reason in reasons)


def test_the_checks_of_a_cell_come_from_its_recipe_and_its_target(tmp_path):
    def of(cell: str) -> set[str]:
        return set(required_checks(Cell.parse(cell)))

    assert {"generates_like_reference", "cache_matches"} <= of("gpt2/text-generation/cuda/float32")
    assert "honours_mask" not in of("vit/image-classification/cuda/float32")
    assert "backward" not in of("vit/image-classification/openvino/float32")
    core = {"builds", "matches_reference", "matches_recorded", "runs_natively"}
    for unknown in ("some-checkpoint/fill-mask/cuda/float32", "odd@name/fill-mask/qnn/float32"):
        assert core <= of(unknown)
        assert "honours_mask" not in of(unknown)
    folder = tmp_path / "cache" / DERIVED / installed_version()
    folder.mkdir(parents=True)
    (folder / "mra.json").write_text("{", encoding="utf-8")
    with pytest.raises(BrokenInput, match="isn't a recipe"):
        of("mra/fill-mask/cpu/float32")


def test_a_checkpoint_needs_evidence_of_its_weights():
    tiny, planned = evidence(run(), lines=passed()), evidence(run(subject="checkpoint"), lines=passed())
    real = evidence(run(subject="checkpoint"), lines=passed(subject="checkpoint"))
    check_levels({"tiny": (tiny, UNKNOWN)}, weights="checkpoint")
    check_levels({"real": (real, HIGH), "planned, and ran with tiny weights": (planned, UNKNOWN)})


# Expiry


def test_evidence_expires_with_what_the_target_depends_on():
    before = run(versions={**PACKAGES, **checker_versions()})
    verdicts = check_levels(
        {
            "another suite": (evidence(run(), run("r2", 2, suite_hash="new"), lines=passed()), OLD),
            "a new driver": (evidence(before, lines=passed()), OLD),
            "a package that the target does not use": (evidence(run(), lines=passed()), HIGH),
        },
        here=inventory(openvino="2099.1"),
    )
    assert "measured by another suite" in texts(verdicts["another suite"].reasons)
    assert any(f"nvidia_driver absent, now {DRIVER}" in reason for reason in texts(verdicts["a new driver"].reasons))
    moved = {"moved": (evidence(run(), lines=passed()), OLD)}
    verdict = check_levels(moved, here=inventory(torch="2.14.0", transformers=None))["moved"]
    for change in ("torch 2.13.0, now 2.14.0", "transformers 5.5.4, now absent"):
        assert any(change in reason for reason in texts(verdict.reasons))


def test_a_backend_from_outside_expires_with_its_package(monkeypatch):
    cell = Cell.parse("bert/fill-mask/mychip/float32")
    monkeypatch.setattr(versions, "plugged_versions", lambda: {"mychip": "1.0+abc"})
    monkeypatch.setattr(versions, "known_targets", lambda: ("mychip",))
    monkeypatch.setattr(versions, "backend_class", lambda name: BaseBackend)
    monkeypatch.setattr(versions, "class_of", lambda target: BaseBackend)
    told = {**PACKAGES, "plug-in mychip": "1.0+abc", "plug-in other": "2"}
    found = versions.relevant_versions(cell, told)
    assert found["plug-in mychip"] == "1.0+abc"
    assert "plug-in other" not in found
    assert versions.expired_by("plug-in mychip") == ("mychip",)
