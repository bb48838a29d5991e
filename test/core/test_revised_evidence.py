"""What revisions do to evidence: which lines a bump expires, which don't count, and what older evidence is worth."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from current_runs import CELL, CHECKS, DRIVER, HIGH, OLD, PACKAGES, ask, evidence, passed, run, says

from generators.compatibility.verdict import Level, Verdict
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.evidence import modeling_files, revisions
from hardware.evidence.modeling_files import modeling_fingerprint, modeling_moved
from hardware.evidence.record import OUTDATED, Outcome, PlannedCell
from hardware.evidence.revisions import Fingerprint, Revisions, checker_versions, modified_parts, recipe_moved
from hardware.evidence.versions import expiry_reasons, relevant_versions
from hardware.testing.check_lines import line_for
from hardware.testing.checks import call_checks
from hardware.testing.suite_file import read_suite
from reports.reason_text import texts

pytestmark = pytest.mark.skipif("honours_mask" not in CHECKS, reason="no recipe of bert for these transformers")

EARLIER = "0.1.0+6545a23b553f"
OPENVINO = Cell.parse("bert/fill-mask/openvino/float32")
MADE_FROM = "18e551d454b1c8c7"
"""What suites of bert/fill-mask said when their templates were those of `EARLIER`."""


@pytest.fixture(autouse=True)
def no_recipes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def bump(monkeypatch) -> Iterator[Callable[[str], None]]:
    """Raise the revision of a part, as a developer would declare it for the code of now."""

    def raised(name: str) -> None:
        known = revisions.load_revisions()
        own = known.part(name)
        assert own is not None
        now = revisions.part_fingerprints()[name]
        more = Fingerprint(fingerprint=now, revision=own.revision + 1, decision="bumped", reason="a test")
        new = replace(own, revision=own.revision + 1, fingerprints=(*own.fingerprints, more))
        parts = tuple(new if part.name == name else part for part in known.parts)
        changed = Revisions(parts=parts, earlier=known.earlier)
        monkeypatch.setattr(revisions, "load_revisions", lambda path=None: changed)
        checker_versions.cache_clear()

    yield raised
    checker_versions.cache_clear()


def measured(**versions: str) -> Verdict:
    """Return the verdict of a run with all versions of now but these."""
    return ask(evidence(run(versions={**run().versions, **versions}), lines=passed()))


def test_a_bump_expires_what_rests_on_the_part_alone(bump) -> None:
    then = dict(checker_versions())
    found = evidence(run(), lines=passed())
    another = {**then, "checker/runner": then["checker/runner"].partition("+")[0] + "+another"}
    assert expiry_reasons(CELL, another, then, CHECKS) == (), "a fingerprint of the same revision expires nothing"
    bump("backend cpu")
    bump("export")
    assert says(ask(found)) == HIGH
    bump("check honours_mask")
    now = dict(checker_versions())
    assert {check for check in CHECKS if expiry_reasons(CELL, then, now, (check,))} == {"honours_mask"}
    assert relevant_versions(CELL, then) == relevant_versions(CELL, now)
    assert relevant_versions(CELL, then, "honours_mask") != relevant_versions(CELL, now, "honours_mask")
    verdict = ask(found)
    assert says(verdict) == OLD
    assert "measured with revision 1 of the check honours_mask, now 2" in texts(verdict.reasons)
    assert modified_parts(then) == ()  # what was declared for the revision before stays declared
    for part in ("runner", "backend cuda", "check backward"):
        bump(part)
        assert any(part in one for one in expiry_reasons(CELL, then, checker_versions(), CHECKS)), part


def test_what_undeclared_code_measured_does_not_count() -> None:
    here = checker_versions()["checker/runner"].partition("+")[2]
    for value in ("1+0123456789ab", "1", "", f"9+{here}", "1+missing", "x"):
        assert modified_parts({**run().versions, "checker/runner": value}) == ("runner",)
    verdict = measured(**{"checker/runner": "1+0123456789ab"})
    assert verdict.level is Level.UNKNOWN
    assert "modified checker: the code of runner doesn't match a recorded revision" in texts(verdict.reasons)
    verdict = measured(**{"checker/check honours_mask": "1+0123456789ab"})
    assert verdict.level is Level.UNKNOWN
    assert "honours_mask was not run" in texts(verdict.reasons), "an undeclared check takes its own lines with it"


def test_what_a_cell_doesnt_rest_on_expires_nothing() -> None:
    elsewhere = {"checker/backend qnn": "1+0123456789ab", "checker/export": "1+0123456789ab"}
    assert modified_parts({**run().versions, **elsewhere}) == ("backend qnn", "export")
    assert says(measured(**elsewhere, hwcompat="9.9.9")) == HIGH


def test_older_evidence_counts_if_an_entry_vouches_for_its_target(bump) -> None:
    older = {**PACKAGES, "nvidia_driver": DRIVER, "hwcompat": EARLIER}
    now = {**PACKAGES, **checker_versions()}
    known = [check for check in CHECKS if check not in call_checks()]
    assert expiry_reasons(OPENVINO, older, now, known) == ()
    for version in ("0.1.0+000000000000", "0.1.0", EARLIER):
        reason = f"hwcompat {version}, before revisions were declared"
        assert reason in expiry_reasons(CELL, {**older, "hwcompat": version}, now, CHECKS)
    verdict = ask(evidence(run(versions=older), lines=passed()))
    assert says(verdict) == OLD
    assert f"measured with hwcompat {EARLIER}, before revisions were declared" in texts(verdict.reasons)
    bump("check backward")
    now = {**PACKAGES, **checker_versions()}
    assert expiry_reasons(OPENVINO, older, now, ("builds",)) == ()
    assert expiry_reasons(OPENVINO, older, now, ("backward",)) == ("revision 1 of the check backward, now 2",)


def planned(**changes: object) -> PlannedCell:
    values = {"cell_id": CELL.id, "checks": CHECKS, "suite": "s.py", "suite_hash": "h", "subject": "tiny"}
    return PlannedCell(**{**values, **changes})


def test_a_plan_holds_as_long_as_its_recipe_is_the_one_of_now() -> None:
    recipe = load_recipe(CELL.model, CELL.task)
    other = replace(recipe, recorded={**recipe.recorded, "scale": 2.0})
    for made_from, digest, moved in (
        (MADE_FROM, recipe.digest, False),
        (MADE_FROM, other.digest, True),
        ("0123456789abcdef", recipe.digest, True),
        ("0123456789abcdef", None, False),
    ):
        assert recipe_moved(planned(made_from=made_from), digest) is moved
    for digest, expected in ((recipe.digest, HIGH), ("another", OLD)):
        plan = (planned(recipe=digest),)
        assert says(ask(evidence(run(plan=plan), lines=passed()))) == expected


def test_a_suite_of_other_revisions_says_so_in_each_line_and_its_results_have_expired(tmp_path) -> None:
    golden = Path(__file__).parents[1] / "recorded" / "suites" / "test_bert_fill_mask_cpu_float32.py"
    text = golden.read_text(encoding="utf-8")
    path = tmp_path / golden.name
    path.write_text(text.replace('"suites 1', '"suites 0'), encoding="utf-8")
    fresh, stale = read_suite(golden), read_suite(path)
    assert OUTDATED not in line_for(fresh, "r1", "builds", Outcome.PASSED).conditions
    assert line_for(stale, "r1", "builds", Outcome.PASSED).conditions[OUTDATED].startswith("suites 0")
    verdict = ask(evidence(run(), lines=passed(conditions={OUTDATED: "suites 0"})))
    assert says(verdict) == OLD
    assert "measured by a suite with other revisions: suites 0" in texts(verdict.reasons)


def test_evidence_of_an_edited_installation_has_expired() -> None:
    now, other = modeling_fingerprint(CELL), "0123456789ab"
    assert says(ask(evidence(run(modeling=other), lines=passed()))) == OLD
    for then, later, expected in ((other, now, OLD), ("", now, HIGH), (now, now, HIGH)):
        plans = run(modeling=then), run("r2", 2, modeling=later)  # the later one has no results
        assert says(ask(evidence(*plans, lines=passed()))) == expected


def test_an_edit_of_an_installed_modeling_file_is_noticed(tmp_path, monkeypatch) -> None:
    folder = modeling_files._models("transformers")
    assert folder is not None
    copy = tmp_path / "models" / "bert"
    shutil.copytree(folder / "bert", copy)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(modeling_files.importlib.util, "find_spec", lambda name: spec)
    one = planned(modeling=modeling_fingerprint(CELL))
    assert len(one.modeling) == 12
    assert not modeling_moved(one, CELL)
    with (copy / "modeling_bert.py").open("a", encoding="utf-8") as file:
        file.write("\n# edited\n")
    modeling_files._fingerprint.cache_clear()
    assert modeling_moved(one, CELL)
    assert not modeling_moved(planned(), CELL)  # an older plan says nothing about them


def test_types_that_are_not_called_like_their_folder_and_models_of_ones_own() -> None:
    text, vision, other, own = (
        modeling_fingerprint(Cell.parse(f"{name}/fill-mask/cpu/float32"))
        for name in ("data2vec-text", "data2vec-vision", "xlm-roberta", "mine@0123abcd")
    )
    assert text == vision != other
    assert own == ""
