"""Evidence that versions, suites, recipes or our own code moved on from is no longer called measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from current_runs import CELL, CHECKS, DRIVER, HIGH, OLD, PACKAGES, ask, evidence, inventory, passed, run, says

from generators.compatibility.made_from import made_from
from generators.compatibility.verdict import Basis, Level
from generators.models.store import load_recipe
from hardware.backends.base import BaseBackend
from hardware.cell import Cell
from hardware.evidence import versions
from hardware.evidence.versions import RELEASE, hash_of_checking, own_version

pytestmark = pytest.mark.skipif("honours_mask" not in CHECKS, reason="no recipe of bert for these transformers")


@pytest.fixture(autouse=True)
def no_recipes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("here", "said"),
    [
        ({"torch": "2.14.0"}, "torch 2.13.0, now 2.14.0"),
        ({"transformers": None}, "transformers 5.5.4, now absent"),
    ],
)
def test_a_version_that_changed_or_went_makes_it_expired(here, said):
    verdict = ask(evidence(run(), lines=passed()), inventory(**here))
    assert says(verdict) == OLD
    assert any(said in reason for reason in verdict.reasons)


def test_a_recipe_or_a_template_that_changed_makes_it_expired():
    def asked(subject: str, made: str | None) -> tuple[Level, Basis]:
        plan = (replace(run(subject=subject).plan[0], made_from=made),)
        return says(ask(evidence(run(plan=plan), lines=passed(subject=subject))))

    recipe = load_recipe(CELL.model, CELL.task)
    assert recipe is not None
    assert asked("tiny", made_from(recipe)) == HIGH
    assert asked("tiny", "0123456789abcdef") == OLD
    other = replace(recipe, recorded={**recipe.recorded, "scale": 2.0})
    assert asked("tiny", made_from(other)) == OLD
    assert asked("checkpoint", "0123456789abcdef") == OLD
    assert asked("checkpoint", made_from(None)) == HIGH  # a recipe that isn't kept: templates alone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("generators.compatibility.made_from._templates", lambda: b"other checks")
        assert made_from(recipe) != made_from(other)
        assert asked("tiny", made_from(recipe)) == HIGH
        changed, changed_alone = made_from(recipe), made_from(None)
    assert asked("tiny", changed) == OLD
    assert asked("checkpoint", changed_alone) == OLD


def test_our_own_checks_are_a_version_too():
    then = {**PACKAGES, "nvidia_driver": DRIVER, "hwcompat": f"{RELEASE}+000000000000"}
    assert own_version() == f"{RELEASE}+{hash_of_checking(Path(versions.__file__).parents[1])}"
    assert says(ask(evidence(run(versions=then), lines=passed()))) == OLD


@pytest.mark.parametrize(
    "name", ["testing/checks.toml", "backends/cpu.py", "export/openvino.py", "output_masks.py", "privateuse1.py"]
)
def test_an_edit_of_what_checks_is_another_version_and_one_of_what_lists_is_none(tmp_path, name):
    for one in ("changes.py", "output_masks.py", "known_answer.py", "privateuse1.py", name, "listing.py"):
        (tmp_path / one).parent.mkdir(exist_ok=True)
        (tmp_path / one).write_text("a")
    before = hash_of_checking(tmp_path)
    (tmp_path / "listing.py").write_text("b")
    assert hash_of_checking(tmp_path) == before
    (tmp_path / name).write_text("b")
    assert hash_of_checking(tmp_path) != before


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


def test_a_package_that_came_makes_it_expired():
    before = evidence(run(versions={**PACKAGES, "hwcompat": own_version()}), lines=passed())
    verdict = ask(before)
    assert says(verdict) == OLD
    assert any(f"nvidia_driver absent, now {DRIVER}" in reason for reason in verdict.reasons)


def test_a_version_that_the_target_does_not_depend_on_changes_nothing():
    assert says(ask(evidence(run(), lines=passed()), inventory(openvino="2099.1"))) == HIGH


def test_evidence_of_another_suite_is_expired():
    newer = run("r2", 2, suite_hash="new")
    verdict = ask(evidence(run(), newer, lines=passed()))
    assert says(verdict) == OLD
    assert "measured by another suite" in verdict.reasons


def test_a_checkpoint_needs_evidence_of_its_weights():
    found = evidence(run(), lines=passed())
    assert ask(found, subject_required="checkpoint").level is Level.UNKNOWN
    real = evidence(run(subject="checkpoint"), lines=passed(subject="checkpoint"))
    assert says(ask(real)) == HIGH
    assert ask(evidence(run(subject="checkpoint"), lines=passed())).level is Level.UNKNOWN
