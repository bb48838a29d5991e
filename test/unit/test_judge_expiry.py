"""Evidence that versions, suites, recipes or our own code moved on from is no longer called measured."""

from __future__ import annotations

import pytest
from current_runs import CHECKS, DRIVER, HIGH, OLD, PACKAGES, ask, evidence, inventory, passed, run, says

from generators.compatibility.verdict import Level
from hardware.backends.base import BaseBackend
from hardware.cell import Cell
from hardware.evidence import versions
from hardware.evidence.revisions import checker_versions
from reports.reason_text import texts

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
    assert any(said in reason for reason in texts(verdict.reasons))


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
    before = evidence(run(versions={**PACKAGES, **checker_versions()}), lines=passed())
    verdict = ask(before)
    assert says(verdict) == OLD
    assert any(f"nvidia_driver absent, now {DRIVER}" in reason for reason in texts(verdict.reasons))


def test_a_version_that_the_target_does_not_depend_on_changes_nothing():
    assert says(ask(evidence(run(), lines=passed()), inventory(openvino="2099.1"))) == HIGH


def test_evidence_of_another_suite_is_expired():
    newer = run("r2", 2, suite_hash="new")
    verdict = ask(evidence(run(), newer, lines=passed()))
    assert says(verdict) == OLD
    assert "measured by another suite" in texts(verdict.reasons)


def test_a_checkpoint_needs_evidence_of_its_weights():
    found = evidence(run(), lines=passed())
    assert ask(found, weights_asked="checkpoint").level is Level.UNKNOWN
    real = evidence(run(subject="checkpoint"), lines=passed(subject="checkpoint"))
    assert says(ask(real)) == HIGH
    assert ask(evidence(run(subject="checkpoint"), lines=passed())).level is Level.UNKNOWN
