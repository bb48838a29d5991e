"""What revisions do to evidence: which lines a bump expires, which don't count, and what older evidence is worth."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from current_runs import CELL, CHECKS, DRIVER, HIGH, OLD, PACKAGES, ask, evidence, passed, run, says

from generators.compatibility.verdict import Level
from generators.models.recipe_store import load_recipe
from hardware.cell import Cell
from hardware.evidence import modeling_files, revisions
from hardware.evidence.latest import read_latest
from hardware.evidence.modeling_files import modeling_fingerprint, modeling_moved
from hardware.evidence.record import OUTDATED, Outcome, PlannedCell
from hardware.evidence.revisions import Fingerprint, Revisions, checker_versions, modified_parts, recipe_moved
from hardware.evidence.versions import expiry_reasons, relevant_versions
from hardware.evidence.writer import EvidenceWriter
from hardware.testing.check_lines import line_for
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


def test_a_bumped_check_expires_the_results_of_that_check_alone(bump):
    then = dict(checker_versions())
    found = evidence(run(), lines=passed())
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


@pytest.mark.parametrize(
    ("part", "expired"),
    [("runner", True), ("backend cuda", True), ("backend cpu", False), ("export", False), ("check backward", True)],
)
def test_a_bump_expires_what_rests_on_the_part(bump, part, expired):
    found = evidence(run(), lines=passed())
    bump(part)
    assert says(ask(found)) == (OLD if expired else HIGH)


def test_another_fingerprint_of_the_same_revision_expires_nothing():
    here = checker_versions()["checker/runner"]
    then = {**checker_versions(), "checker/runner": here.partition("+")[0] + "+another"}
    assert expiry_reasons(CELL, then, checker_versions(), CHECKS) == ()


@pytest.mark.parametrize("value", ["1+0123456789ab", "1", "", "9+{here}", "1+missing", "x"])
def test_what_undeclared_code_measured_does_not_count(value):
    here = checker_versions()["checker/runner"].partition("+")[2]
    versions = {**run().versions, "checker/runner": value.format(here=here)}
    assert modified_parts(versions) == ("runner",)
    verdict = ask(evidence(run(versions=versions), lines=passed()))
    assert verdict.level is Level.UNKNOWN
    assert "modified checker: the code of runner isn't that of any recorded revision" in texts(verdict.reasons)


def test_an_undeclared_backend_of_another_target_is_none_of_the_cells_business():
    versions = {**run().versions, "checker/backend qnn": "1+0123456789ab", "checker/export": "1+0123456789ab"}
    assert modified_parts(versions) == ("backend qnn", "export")
    assert says(ask(evidence(run(versions=versions), lines=passed()))) == HIGH


def test_an_undeclared_check_takes_its_own_lines_with_it():
    versions = {**run().versions, "checker/check honours_mask": "1+0123456789ab"}
    verdict = ask(evidence(run(versions=versions), lines=passed()))
    assert verdict.level is Level.UNKNOWN
    assert "honours_mask was not run" in texts(verdict.reasons)


def test_the_release_alone_expires_nothing():
    versions = {**run().versions, "hwcompat": "9.9.9"}
    assert says(ask(evidence(run(versions=versions), lines=passed()))) == HIGH


def older(version: str = EARLIER) -> dict[str, str]:
    return {**PACKAGES, "nvidia_driver": DRIVER, "hwcompat": version}


def test_older_evidence_counts_where_an_entry_vouches_for_its_target(bump):
    now = {**PACKAGES, **checker_versions()}
    assert expiry_reasons(OPENVINO, older(), now, CHECKS) == ()
    here = {**now, "nvidia_driver": DRIVER}
    assert expiry_reasons(CELL, older(), here, CHECKS) == (f"hwcompat {EARLIER}, before revisions were declared",)
    bump("check backward")
    now = {**PACKAGES, **checker_versions()}
    assert expiry_reasons(OPENVINO, older(), now, ("builds",)) == ()
    assert expiry_reasons(OPENVINO, older(), now, ("backward",)) == ("revision 1 of the check backward, now 2",)


@pytest.mark.parametrize("version", ["0.1.0+000000000000", "0.1.0", EARLIER])
def test_older_evidence_that_no_entry_vouches_for_has_expired(version):
    verdict = ask(evidence(run(versions=older(version)), lines=passed()))
    assert says(verdict) == OLD
    assert f"measured with hwcompat {version}, before revisions were declared" in texts(verdict.reasons)


def planned(**changes: object) -> PlannedCell:
    values = {"cell_id": CELL.id, "checks": CHECKS, "suite": "s.py", "suite_hash": "h", "subject": "tiny"}
    return PlannedCell(**{**values, **changes})


def test_an_older_plan_holds_as_long_as_its_recipe_is_the_one_of_now():
    recipe = load_recipe(CELL.model, CELL.task)
    assert not recipe_moved(planned(made_from=MADE_FROM), recipe.digest)
    other = replace(recipe, recorded={**recipe.recorded, "scale": 2.0})
    assert recipe_moved(planned(made_from=MADE_FROM), other.digest)
    assert recipe_moved(planned(made_from="0123456789abcdef"), recipe.digest)
    assert not recipe_moved(planned(made_from="0123456789abcdef"), None)


def test_a_recipe_that_changed_expires_what_its_suite_measured():
    recipe = load_recipe(CELL.model, CELL.task)
    for digest, expected in ((recipe.digest, HIGH), ("another", OLD)):
        plan = (planned(recipe=digest),)
        assert says(ask(evidence(run(plan=plan), lines=passed()))) == expected


def test_a_suite_of_other_revisions_says_so_in_each_line_and_its_results_have_expired(tmp_path):
    golden = Path(__file__).parents[1] / "recorded" / "suites" / "test_bert_fill_mask_cpu_float32.py"
    text = golden.read_text(encoding="utf-8")
    path = tmp_path / golden.name
    path.write_text(text.replace('REVISIONS = "suites 1"', 'REVISIONS = "suites 0"'), encoding="utf-8")
    fresh, stale = read_suite(golden), read_suite(path)
    assert OUTDATED not in line_for(fresh, "r1", "builds", Outcome.PASSED).conditions
    conditions = line_for(stale, "r1", "builds", Outcome.PASSED).conditions
    assert conditions[OUTDATED] == "suites 0"
    verdict = ask(evidence(run(), lines=passed(conditions={OUTDATED: "suites 0"})))
    assert says(verdict) == OLD
    assert "measured by a suite of other revisions: suites 0" in texts(verdict.reasons)


def test_a_pass_with_other_modeling_files_doesnt_count_under_a_later_plan_without_results():
    now = modeling_fingerprint(CELL)
    then = run(modeling="0123456789ab")
    for later_one, expected in ((run("r2", 2, modeling=now), OLD), (run("r2", 2, modeling="0123456789ab"), OLD)):
        assert says(ask(evidence(then, later_one, lines=passed()))) == expected
    assert says(ask(evidence(run(modeling=now), run("r2", 2, modeling=now), lines=passed()))) == HIGH


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """A copy of bert's folder of transformers, found as if it were installed."""
    folder = modeling_files._models("transformers")
    assert folder is not None
    shutil.copytree(folder / "bert", tmp_path / "models" / "bert")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(modeling_files.importlib.util, "find_spec", lambda name: spec)
    return tmp_path / "models" / "bert"


def test_an_edit_of_an_installed_modeling_file_is_noticed(installed):
    one = planned(modeling=modeling_fingerprint(CELL))
    assert len(one.modeling) == 12
    assert not modeling_moved(one, CELL)
    file = installed / "modeling_bert.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    modeling_files._fingerprint.cache_clear()
    assert modeling_moved(one, CELL)
    assert not modeling_moved(planned(), CELL)  # an older plan tells nothing of them


def test_types_that_are_not_called_like_their_folder_and_models_of_ones_own():
    found = {
        name: modeling_fingerprint(Cell.parse(f"{name}/fill-mask/cpu/float32"))
        for name in ("data2vec-text", "data2vec-vision", "xlm-roberta", "mine@0123abcd")
    }
    assert found["data2vec-text"] == found["data2vec-vision"] != found["xlm-roberta"]
    assert found["mine@0123abcd"] == ""


def test_evidence_of_an_edited_installation_has_expired():
    for digest, expected in ((modeling_fingerprint(CELL), HIGH), ("000000000000", OLD), ("", HIGH)):
        verdict = ask(evidence(run(plan=(planned(modeling=digest),)), lines=passed()))
        assert says(verdict) == expected


def test_a_plan_that_is_read_from_a_folder_keeps_its_recipe_and_modeling(tmp_path):
    writer = EvidenceWriter(tmp_path, "r1")
    writer.write(run(plan=(planned(recipe="digest", modeling="0123456789ab"),)))
    for one in passed():
        writer.write(one)
    writer.close()
    plan = read_latest(tmp_path).plans[CELL.id]
    assert (plan.recipe, plan.modeling, plan.made_from) == ("digest", "0123456789ab", None)
