"""What a page saved: taken in where the sealed page could have written it, refused with the reason where not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_page import Lines, captured, edit, made_page, merged, of, saved, written

from generators.compatibility.judge import judge
from generators.compatibility.verdict import Basis, Level
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.evidence.latest import read_latest
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import SEALS, keep_seal, seal_text
from hardware.evidence.store import read_folder
from hardware.evidence.versions import BROWSER_OF_PAGE, DRIVEN, expiry_reasons, moved_versions, versions_of
from reports.diagnose import diagnose
from reports.finding import Severity


def test_what_the_page_wrote_is_taken_in_and_read_as_evidence(tmp_path: Path) -> None:
    evidence = read_folder(merged(tmp_path))
    assert not evidence.broken
    assert {line.check_name: str(line.outcome) for line in evidence.checks} == {
        "builds": "passed",
        "matches_reference": "passed",
        "matches_recorded": "passed",
        "honours_mask": "not_run",
        "runs_natively": "passed",
    }
    (verdict,) = judge(read_latest(evidence), detect())
    assert verdict.level is Level.UNKNOWN  # a check that couldn't run is no pass
    (finding,) = diagnose(evidence.checks)
    assert (finding.severity, finding.error_type) == (Severity.INFO, "not_measured")
    assert "a page can't ask this check" in finding.message


def test_a_file_that_was_renamed_on_its_way_gets_its_own_name(tmp_path: Path) -> None:
    page = made_page()
    lines = written(page)
    keep_seal(tmp_path / "evidence", page.text)
    renamed = saved(tmp_path, lines, name=f"{lines[0]['run_id']}-1 (2).jsonl.txt")
    (one,) = merge_evidence(renamed, tmp_path / "evidence")
    assert (one.name, one.state) == (f"{lines[0]['run_id']}-1.jsonl", "taken")
    (again,) = merge_evidence(renamed, tmp_path / "evidence")
    assert again.state == "known"


def test_without_the_seal_nothing_is_taken(tmp_path: Path) -> None:
    page = made_page()
    path = saved(tmp_path, written(page))
    with pytest.raises(BrokenInput, match=r"seal of page .* isn't known here"):
        merge_evidence(path, tmp_path / "evidence")
    kept = keep_seal(tmp_path / "evidence", page.text)
    kept.write_text(page.text.replace('"limit":2e-05', '"limit":2e+05'), encoding="utf-8")
    with pytest.raises(BrokenInput, match="was changed"):
        merge_evidence(path, tmp_path / "evidence")
    assert not list((tmp_path / "evidence").glob("*.jsonl"))


def prediction(lines: Lines) -> None:
    lines[0]["plan"] = json.loads(json.dumps(lines[0]["plan"]).replace('"medium"', '"high"'))


def more_checks(lines: Lines) -> None:
    lines[0]["plan"][0]["checks"].append("backward")


def other_cell(lines: Lines) -> None:
    for line in lines[1:-1]:
        line["cell_id"] = "gpt2/text-generation/webgpu/float32"


def without_page(lines: Lines) -> None:
    del lines[0]["page"]


def not_run_but_passed(lines: Lines) -> None:
    changes = {"outcome": "passed", "actual_target": "webgpu", "actual_dtype": "float32", "error_type": ""}
    of(lines, "honours_mask").update(changes)
    lines[-1]["counts"] = {"passed": 5}


def twice(lines: Lines) -> None:
    lines.insert(2, dict(lines[1]))


def forgotten(lines: Lines) -> None:
    del lines[2]


REFERENCE = "matches_reference"
TAMPERED = {
    "the prediction": (prediction, "its plan isn't the one recorded"),
    "an unknown check in the plan": (more_checks, "its plan isn't the one recorded"),
    "an unknown check": (edit(REFERENCE, check_name="feels_right"), "is of no planned check"),
    "another cell": (other_cell, "is of no planned check"),
    "a page without its page": (without_page, "'page' is a required property"),
    "an unknown page": (lambda lines: lines[0]["page"].update(id="0" * 64), "isn't known here"),
    "a path for a page": (lambda lines: lines[0]["page"].update(id="../../x"), "doesn't fit the schema"),
    "another model file": (lambda lines: lines[0]["page"]["hashes"].update({"model-0": "0" * 64}), "model-0"),
    "other expected outputs": (lambda lines: lines[0]["page"]["hashes"].pop("expected"), "expected"),
    "no hashes at all": (lambda lines: lines[0]["page"].update(hashes={}), "yet something ran"),
    "other versions": (lambda lines: lines[0]["versions"].update(torch="9"), "versions"),
    "no browser": (lambda lines: lines[0]["versions"].pop(BROWSER_OF_PAGE), "in which browser"),
    "an error beyond the tolerance": (
        edit(REFERENCE, max_rel_error=0.5, steps=[0.5]),
        "isn't what the page requires: at most 2e-05",
    ),
    "an error that hides behind its step": (edit(REFERENCE, max_rel_error=0.5), "an error of '0.5'"),
    "a wider tolerance": (edit(REFERENCE, tolerance=1.0), "the recorded tolerance is 2e-05"),
    "a number that is a text": (edit(REFERENCE, max_rel_error="nan", steps=["nan"]), "which is no error"),
    "a number that isn't there": (edit(REFERENCE, max_rel_error=None), "an error of 'None'"),
    "a negative error": (edit(REFERENCE, steps=[-1.0]), "no error"),
    "a truth for a number": (edit(REFERENCE, steps=[False]), "doesn't fit the schema"),
    "fewer numbers": (edit("matches_recorded", steps=[3e-6]), "1 of 2 numbers"),
    "a fault that isn't heard": (edit("matches_recorded", steps=[3e-6, 1e-9]), "more than 4e-05"),
    "an error that isn't the largest": (edit(REFERENCE, max_rel_error=1e-9), "the largest"),
    "a check that couldn't be asked": (not_run_but_passed, "no way of asking 'honours_mask'"),
    "an operator on the host": (
        edit("runs_natively", native_ops={}, offloaded_ops={"onnx.MatMul": 1}),
        "ran on the host",
    ),
    "another proof": (edit("runs_natively", native_ops={"onnx.MatMul": 7}), "aren't those of the model's file"),
    "a proof that says nothing of a node": (
        edit("runs_natively", native_ops={"onnx.Transpose": 2}),
        "aren't those of the model's file",
    ),
    "an error of what holds nothing against a reference": (
        edit("matches_recorded", steps=[3e-6, 1.5], max_rel_error=1e-9),
        "the largest",
    ),
    "another precision": (edit(REFERENCE, actual_dtype="float16"), "in the precision"),
    "a precision of what didn't run": (edit("honours_mask", actual_dtype="float32"), "says that it didn't"),
    "no precision at all": (edit("honours_mask", actual_dtype="<img>"), "not in the precision"),
    "another target": (edit(REFERENCE, actual_target="cpu"), "on which target"),
    "a substitute": (edit(REFERENCE, outcome="passed_on_fallback"), "no page ends a check as"),
    "a condition left out": (lambda lines: of(lines, REFERENCE)["conditions"].pop("shapes"), "its condition"),
    "a check twice": (twice, "each once"),
    "a check forgotten": (forgotten, "each once"),
    "no end": (lambda lines: lines.pop(), "it was cut off"),
    "another count": (lambda lines: lines[-1].update(counts={"passed": 5}), "counts other outcomes"),
    "a moment before the seal": (
        lambda lines: [line.update(started_at="2020-01-01T00:00:00.000000+00:00") for line in lines[:-1]],
        "before the page was made",
    ),
    "a moment to come": (edit(REFERENCE, started_at="2199-01-01T00:00:00.000000+00:00"), "yet to come"),
    "no moment": (edit(REFERENCE, started_at="yesterday"), "no moment"),
    "another device": (edit(REFERENCE, accelerator="another"), "isn't the device that its inventory describes"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_refused_with_the_reason(tmp_path: Path, what: str) -> None:
    change, reason = TAMPERED[what]
    with pytest.raises(BrokenInput) as refused:
        merged(tmp_path, change)
    assert reason in str(refused.value), str(refused.value)
    assert not list((tmp_path / "evidence").glob("*.jsonl"))


def test_layouts_that_the_runtime_changed_are_no_other_proof(tmp_path: Path) -> None:
    evidence = read_folder(
        merged(tmp_path, edit("runs_natively", native_ops={"onnx.MatMul": 1, "onnx.Transpose": 2}))
    )
    assert not evidence.broken
    assert len(evidence.checks) == 5


@pytest.mark.parametrize(("error", "refused"), [(None, False), (1e-9, True)])
def test_a_check_that_only_asks_whether_something_is_heard_has_no_error(
    tmp_path: Path, error: float | None, refused: bool
) -> None:
    asked = captured().asked
    steps = {**asked["steps"], "matches_recorded": asked["steps"]["matches_recorded"][1:]}
    page = made_page(suite=replace(captured(), asked={**asked, "steps": steps}))
    lines = written(page)
    of(lines, "matches_recorded").update(max_rel_error=error, steps=[1.5])
    keep_seal(tmp_path / "evidence", page.text)
    path = saved(tmp_path, lines)
    if refused:
        with pytest.raises(BrokenInput, match="isn't the largest"):
            merge_evidence(path, tmp_path / "evidence")
    else:
        assert [one.state for one in merge_evidence(path, tmp_path / "evidence")] == ["taken"]


def without(*keys: str) -> Callable[[dict[str, Any]], Any]:
    def change(seal: Any) -> None:
        for key in keys[:-1]:
            seal = seal[key]
        del seal[keys[-1]]

    return change


DAMAGED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no limit": (without("tolerance", "limit"), "'limit' is a required property"),
    "no steps": (without("steps"), "'steps' is a required property"),
    "no names of software": (without("target", "software"), "'software' is a required property"),
    "a step without a limit": (
        lambda seal: seal["steps"]["matches_reference"][0].pop("at_most"),
        "steps.matches_reference.0",
    ),
    "a pass that isn't there": (
        lambda seal: seal["steps"]["runs_natively"][0].update({"pass": 7}),
        "a step of 'runs_natively' names a pass",
    ),
    "a reference that isn't there": (
        lambda seal: seal["steps"]["matches_reference"][0].update(want=1),
        "a step of 'matches_reference' names a pass or a reference",
    ),
    "a file that isn't there": (lambda seal: seal["passes"][0].update(file=3), "a pass names a file"),
    "two cells": (lambda seal: seal["run"]["plan"].append({"checks": []}), "run.plan"),
    "another version": (lambda seal: seal.update(schema_version=1), "is of another version"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_seal_that_no_page_could_have_is_refused_with_the_reason(tmp_path: Path, what: str) -> None:
    change, reason = DAMAGED[what]
    page = made_page()
    seal = json.loads(page.text)
    change(seal)
    refuse_sealed(tmp_path, seal_text(seal), reason)


@pytest.mark.parametrize(
    ("text", "reason"), [("[]", "the seal: "), ("{", "is no JSON"), ("[" * 100_000, "is no JSON")]
)
def test_a_seal_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    refuse_sealed(tmp_path, text, reason)


def refuse_sealed(folder: Path, text: str, reason: str) -> None:
    """Evidence that names a page with that seal is refused for it."""
    lines = written(made_page())
    lines[0]["page"]["id"] = keep_seal(folder / "evidence", text).stem
    path = saved(folder, lines)
    with pytest.raises(BrokenInput) as refused:
        merge_evidence(path, folder / "evidence")
    assert reason in str(refused.value), str(refused.value)


def test_a_second_file_of_a_pages_run_is_refused(tmp_path: Path) -> None:
    page = made_page()
    lines = written(page)
    keep_seal(tmp_path / "evidence", page.text)
    folder = saved(tmp_path / "from-a-phone", lines).parent
    more = dict(of(lines, "builds"), conditions={}, accelerator="a better one")
    saved(folder, [more], name=f"{lines[0]['run_id']}-2.jsonl")
    with pytest.raises(BrokenInput, match="a page saves one file"):
        merge_evidence(folder, tmp_path / "evidence")


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(BrokenInput, match="NaN is no number of JSON"):
        merged(tmp_path, edit(REFERENCE, max_rel_error=math.nan))


def test_a_failure_is_taken_in_as_one(tmp_path: Path) -> None:
    def failed(lines: Lines) -> None:
        of(lines, REFERENCE).update(
            outcome="failed", max_rel_error=0.5, steps=[0.5], error_type="numerical_mismatch", stage="compare"
        )
        lines[-1]["counts"] = {"passed": 3, "failed": 1, "not_run": 1}

    (verdict,) = judge(read_latest(merged(tmp_path, failed)), detect())
    assert verdict.level is Level.UNSUPPORTED
    assert verdict.basis in (Basis.MEASURED, Basis.EXPIRED)


def test_the_browser_of_a_page_is_a_part_of_the_device_and_expires_nothing() -> None:
    here = {"chromium (webgpu)": "150", "playwright": "1.65", "torch": "2.13"}
    assert moved_versions({"torch": "2.13", BROWSER_OF_PAGE: "Safari 26"}, here) == ()
    assert moved_versions({"torch": "2.12", BROWSER_OF_PAGE: "Safari 26"}, here) == ("torch 2.12, now 2.13",)
    assert len(moved_versions({"torch": "2.13"}, here)) == 2
    cell = Cell.parse("bert/fill-mask/webgpu/float32")
    then = {name: version for name, version in versions_of(detect()).items() if name not in DRIVEN}
    now = {**then, "chromium (webgpu)": "150", "playwright": "1.65"}
    assert expiry_reasons(cell, {**then, BROWSER_OF_PAGE: "Safari 26"}, now) == ()
    assert len(expiry_reasons(cell, then, now)) == 2


def test_seals_lie_beside_the_evidence_and_are_no_evidence(tmp_path: Path) -> None:
    path = keep_seal(tmp_path, made_page(suite=captured()).text)
    assert path.parent == tmp_path / SEALS
    assert not read_folder(tmp_path).broken
