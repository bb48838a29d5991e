"""Evidence of a page: merged if the sealed page could have written it, and refused with the reason if not."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_page import (
    Lines,
    adapter,
    captured,
    context,
    edit,
    machine_of,
    made_page,
    merged,
    of,
    recorded,
    saved,
    written,
)

from hardware.cell import Cell
from hardware.errors import BrokenInput
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import SEALS, keep_seal, seal_text
from hardware.evidence.store import read_folder
from hardware.evidence.versions import BROWSER_OF_PAGE, DRIVEN, expiry_reasons, moved_versions, versions_of
from hardware.evidence.writer import machine_label
from hwcompat.plugins.web_page.page_seal import SealedPage

REFERENCE = "matches_reference"


def test_lines_of_a_page_are_merged_under_the_name_of_their_run(tmp_path: Path) -> None:
    page = made_page()
    lines = written(page)
    evidence = tmp_path / "evidence"
    seal = keep_seal(evidence, page.text)
    assert seal.parent == evidence / SEALS
    renamed = saved(tmp_path, lines, name=f"{lines[0]['run_id']}-1 (2).jsonl.txt")
    (one,) = merge_evidence(renamed, evidence)
    assert (one.name, one.state) == (f"{lines[0]['run_id']}-1.jsonl", "taken")
    (again,) = merge_evidence(renamed, evidence)
    assert again.state == "known"
    found = read_folder(evidence)
    assert not found.broken
    assert {line.check_name: str(line.outcome) for line in found.checks} == {
        "builds": "passed",
        "batch_invariance": "passed",
        "attention_agrees": "passed",
        "matches_reference": "passed",
        "matches_recorded": "passed",
        "honours_mask": "not_run",
        "runs_natively": "passed",
    }
    relaid = edit("runs_natively", native_ops={"onnx.MatMul": 1, "onnx.Transpose": 2})  # the runtime's own layouts
    found = read_folder(merged(tmp_path / "relaid", relaid))
    assert (len(found.checks), found.broken) == (7, ())


def refused(folder: Path, page: SealedPage, path: Path, reason: str) -> str:
    """What is wrong with the refusal of a file of evidence; empty if it is refused for that reason."""
    try:
        merge_evidence(path, folder / "evidence")
    except BrokenInput as error:
        assert not list((folder / "evidence").glob("*.jsonl"))
        return "" if reason in str(error) else str(error)
    return "it was accepted"


def refused_change(folder: Path, change: Callable[[Lines], Any], reason: str) -> str:
    page = made_page()
    lines = written(page)
    change(lines)
    keep_seal(folder / "evidence", page.text)
    return refused(folder, page, saved(folder / "from-a-phone", lines), reason)


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


def ahead(hours: float) -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)).isoformat(timespec="microseconds")


def own_machine(lines: Lines) -> None:
    lines[0]["machine"] = machine_label()


def another_browser(lines: Lines) -> None:
    lines[0]["inventory"]["browser"]["agent"] += " "


def only_a_reason(lines: Lines) -> None:
    lines[0]["inventory"].update(adapter={"reason": "x"}, accelerators=[])


def whole_reason(lines: Lines) -> None:
    """Passes on a machine where nothing runs, consistent in everything else."""
    only_a_reason(lines)
    lines[0]["machine"] = machine_of("")
    for line in lines[1:-1]:
        line["accelerator"] = None
        line["conditions"].pop("adapter")


def said_in_the_inventory(lines: Lines) -> None:
    lines[0]["inventory"]["accelerators"][0].update(model="google swiftshader", device_type="software")


def condition(**changes: str) -> Callable[[Lines], None]:
    return lambda lines: of(lines, REFERENCE)["conditions"].update(changes)


TAMPERED = {
    "the prediction": (prediction, "its plan differs from the page's"),
    "an unknown check in the plan": (more_checks, "its plan differs from the page's"),
    "an unknown check": (edit(REFERENCE, check_name="feels_right"), "is not a planned check"),
    "another cell": (other_cell, "is not a planned check"),
    "a page without its page": (without_page, "'page' is a required property"),
    "an unknown page": (lambda lines: lines[0]["page"].update(id="0" * 64), "was not found"),
    "a path for a page": (lambda lines: lines[0]["page"].update(id="../../x"), "doesn't match the schema"),
    "another model file": (lambda lines: lines[0]["page"]["hashes"].update({"model-0": "0" * 64}), "model-0"),
    "other expected outputs": (lambda lines: lines[0]["page"]["hashes"].pop("expected"), "expected"),
    "no hashes at all": (lambda lines: lines[0]["page"].update(hashes={}), "it has no file hashes"),
    "other versions": (lambda lines: lines[0]["versions"].update(torch="9"), "versions"),
    "no browser": (lambda lines: lines[0]["versions"].pop(BROWSER_OF_PAGE), "name the browser"),
    "an error beyond the tolerance": (
        edit(REFERENCE, max_rel_error=0.5, steps=[0.5]),
        "but the page requires at most 2e-05",
    ),
    "an error that hides behind its step": (edit(REFERENCE, max_rel_error=0.5), "an error of '0.5'"),
    "a wider tolerance": (edit(REFERENCE, tolerance=1.0), "the tolerance is 2e-05"),
    "a number that is a text": (edit(REFERENCE, max_rel_error="nan", steps=["nan"]), "is not a valid error"),
    "a number that isn't there": (edit(REFERENCE, max_rel_error=None), "an error of 'None'"),
    "a negative error": (edit(REFERENCE, steps=[-1.0]), "not a valid error"),
    "a truth for a number": (edit(REFERENCE, steps=[False]), "doesn't match the schema"),
    "fewer numbers": (edit("matches_recorded", steps=[3e-6]), "1 of 2 measured errors"),
    "a fault that isn't heard": (edit("matches_recorded", steps=[3e-6, 1e-9]), "more than 4e-05"),
    "an error that isn't the largest": (edit(REFERENCE, max_rel_error=1e-9), "the largest"),
    "a check that couldn't be asked": (not_run_but_passed, "can't run 'honours_mask'"),
    "an operator on the host": (
        edit("runs_natively", native_ops={}, offloaded_ops={"onnx.MatMul": 1}),
        "ran on the host",
    ),
    "another proof": (edit("runs_natively", native_ops={"onnx.MatMul": 7}), "differ from those of the model file"),
    "a proof that says nothing of a node": (
        edit("runs_natively", native_ops={"onnx.Transpose": 2}),
        "differ from those of the model file",
    ),
    "an error of what holds nothing against a reference": (
        edit("matches_recorded", steps=[3e-6, 1.5], max_rel_error=1e-9),
        "the largest",
    ),
    "another precision": (edit(REFERENCE, actual_dtype="float16"), "not in the page's precision"),
    "a precision of what didn't run": (edit("honours_mask", actual_dtype="float32"), "its outcome is not_run"),
    "no precision at all": (edit("honours_mask", actual_dtype="<img>"), "not in the page's precision"),
    "another target": (edit(REFERENCE, actual_target="cpu"), "its target is missing or wrong"),
    "a substitute": (edit(REFERENCE, outcome="passed_on_fallback"), "a page can't record the outcome"),
    "a condition left out": (lambda lines: of(lines, REFERENCE)["conditions"].pop("shapes"), "its condition"),
    "a check twice": (twice, "exactly once"),
    "a check forgotten": (forgotten, "exactly once"),
    "no end": (lambda lines: lines.pop(), "it is truncated"),
    "another count": (lambda lines: lines[-1].update(counts={"passed": 5}), "the counts in its end line"),
    "a moment before the seal": (
        lambda lines: [line.update(started_at="2020-01-01T00:00:00.000000+00:00") for line in lines[:-1]],
        "before the page was made",
    ),
    "a moment to come": (edit(REFERENCE, started_at="2199-01-01T00:00:00.000000+00:00"), "in the future"),
    "no moment": (edit(REFERENCE, started_at="yesterday"), "not a UTC time"),
    "another device": (edit(REFERENCE, accelerator="another"), "doesn't match the device in its inventory"),
}


NOT_OF_A_PAGE = {
    "this machine's own label": (own_machine, "machine: 'machine-"),
    "a machine of another browser": (another_browser, "match its browser and device"),
    "no inventory of an adapter": (
        lambda lines: lines[0]["inventory"].pop("adapter"),
        "'adapter' is a required property",
    ),
    "no adapter's names": (lambda lines: lines[0]["inventory"].update(adapter={}), "inventory.adapter"),
    "a context for an adapter": (
        lambda lines: lines[0]["inventory"].update(adapter=context("cpu")),
        "the adapter has no vendor",
    ),
    "a reason beside an adapter": (
        lambda lines: lines[0]["inventory"]["adapter"].update(reason="x"),
        "inventory.adapter",
    ),
    "passes where nothing runs": (whole_reason, "nothing can run there, but the check is passed"),
    "a reason alone": (only_a_reason, "match its browser and device"),
    "software among the accelerators": (said_in_the_inventory, "don't match its adapter"),
    "software as a condition": (condition(adapter="google swiftshader (software)"), "its condition 'adapter'"),
    "software as the accelerator": (
        edit(REFERENCE, accelerator="google swiftshader (software)"),
        "doesn't match the device in its inventory",
    ),
    "a condition of its own": (condition(emulator="no"), "can't record the condition emulator"),
    "another browser": (lambda lines: lines[0]["versions"].update({BROWSER_OF_PAGE: "Safari 26"}), "name different"),
    "memory": (edit(REFERENCE, peak_memory_bytes=10**400), "'peak_memory_bytes' was unexpected"),
    "a field of a page to come": (lambda lines: lines[0].update(level="high"), "'level' was unexpected"),
    "a field of its end": (lambda lines: lines[-1].update(level="high"), "'level' was unexpected"),
    "an end for another reason": (lambda lines: lines[-1].update(reason="interrupted"), "'finished' was expected"),
    "a batch beyond all": (edit(REFERENCE, batch=10**30), "batch: "),
    "a batch that isn't in the seal": (edit(REFERENCE, batch=3), "batch size or length of its inputs differs"),
    "an error beyond numbers": (edit(REFERENCE, max_abs_error=10**400), "OverflowError"),
    "a latency beyond all": (edit(REFERENCE, latency_ms=1e300), "latency_ms: "),
    "an age for a duration": (edit(REFERENCE, duration_s=1e12), "duration_s: "),
    "an end at no moment": (lambda lines: lines[-1].update(ended_at="soon"), "'soon' is not a UTC time"),
    "an end of another zone": (lambda lines: lines[-1].update(ended_at="2026-11-23T12:00+14:00"), "not a UTC time"),
    "an end before the beginning": (lambda lines: lines[-1].update(ended_at=ahead(-12)), "ended before it started"),
    "an end to come": (lambda lines: lines[-1].update(ended_at=ahead(23)), "in the future"),
    "a check that is ahead": (edit(REFERENCE, started_at=ahead(23)), "in the future"),
    "a file that the page hasn't": (
        lambda lines: lines[0]["page"]["hashes"].update({"../evil.js": "0" * 64}),
        "the page has no file '../evil.js'",
    ),
    "a beginning that its name doesn't have": (
        lambda lines: lines[0].update(started_at=ahead(-12)),
        "its run id is",
    ),
}


def test_evidence_that_the_page_could_not_write_is_refused_with_the_reason(tmp_path: Path) -> None:
    changes = {**TAMPERED, **NOT_OF_A_PAGE, "not a number": (edit(REFERENCE, max_rel_error=math.nan), "NaN is not")}
    assert len(changes) == len(TAMPERED) + len(NOT_OF_A_PAGE) + 1
    found = {
        what: refused_change(tmp_path / str(number), *changes[what]) for number, what in enumerate(sorted(changes))
    }
    assert {what: why for what, why in found.items() if why} == {}


def test_text_that_can_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    page = made_page()
    for number, (before, after, reason) in enumerate(
        (
            ('"duration_s": 0.1', '"duration_s": 1e999', "1e999 is too large for a number"),
            ('"outcome": "passed"', '"outcome": "failed", "outcome": "passed"', "duplicate key 'outcome'"),
            ('"counts": {', '"counts": {"failed": 4, "failed": 0, ', "duplicate key 'failed'"),
        )
    ):
        folder = tmp_path / str(number)
        keep_seal(folder / "evidence", page.text)
        path = saved(folder, written(page))
        text = path.read_text(encoding="utf-8")
        assert before in text
        path.write_text(text.replace(before, after), encoding="utf-8")
        assert refused(folder, page, path, reason) == ""


def test_a_second_file_of_the_run_of_a_page_is_refused(tmp_path: Path) -> None:
    page = made_page()
    lines = written(page)
    keep_seal(tmp_path / "evidence", page.text)
    folder = saved(tmp_path / "from-a-phone", lines).parent
    more = dict(of(lines, "builds"), conditions={}, accelerator="a better one")
    saved(folder, [more], name=f"{lines[0]['run_id']}-2.jsonl")
    with pytest.raises(BrokenInput, match="a page saves only one file"):
        merge_evidence(folder, tmp_path / "evidence")


def test_a_check_of_faults_alone_has_no_error(tmp_path: Path) -> None:
    asked = captured().asked
    steps = {**asked["steps"], "matches_recorded": asked["steps"]["matches_recorded"][1:]}
    page = made_page(suite=replace(captured(), asked={**asked, "steps": steps}))
    for error in (1e-9, None):
        lines = written(page)
        of(lines, "matches_recorded").update(max_rel_error=error, steps=[1.5])
        keep_seal(tmp_path / "evidence", page.text)
        path = saved(tmp_path, lines)
        if error is not None:
            assert refused(tmp_path, page, path, "isn't the largest") == ""
        else:
            assert [one.state for one in merge_evidence(path, tmp_path / "evidence")] == ["taken"]


# Seals


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
    "another version": (lambda seal: seal.update(schema_version=1), "has another version"),
}


def test_evidence_without_the_seal_of_its_page_is_refused(tmp_path: Path) -> None:
    page = made_page()
    path = saved(tmp_path, written(page))
    with pytest.raises(BrokenInput, match=r"seal of page .* was not found"):
        merge_evidence(path, tmp_path / "evidence")
    kept = keep_seal(tmp_path / "evidence", page.text)
    kept.write_text(page.text.replace('"limit":2e-05', '"limit":2e+05'), encoding="utf-8")
    assert refused(tmp_path, page, path, "was changed") == ""

    seals = {"a list": ("[]", "the seal: "), "half": ("{", "valid JSON"), "deep": ("[" * 100_000, "valid JSON")}
    for what, (change, reason) in DAMAGED.items():
        seal = json.loads(page.text)
        change(seal)
        seals[what] = (seal_text(seal), reason)
    found = {}
    for number, (what, (text, reason)) in enumerate(seals.items()):
        folder = tmp_path / str(number)
        lines = written(page)
        lines[0]["page"]["id"] = keep_seal(folder / "evidence", text).stem
        found[what] = refused(folder, page, saved(folder, lines), reason)
    assert {what: why for what, why in found.items() if why} == {}


# Devices


def test_a_browser_that_runs_nothing_ran_nothing(tmp_path: Path) -> None:
    def nothing(lines: Lines) -> None:
        whole_reason(lines)
        lines[0]["page"]["hashes"] = {}
        for line in lines[1:-1]:
            line.update(outcome="not_run", error_type="device_absent", actual_target=None, actual_dtype=None)
        lines[-1]["counts"] = {"not_run": len(lines) - 2}

    evidence = read_folder(merged(tmp_path, nothing))
    assert {str(line.outcome) for line in evidence.checks} == {"not_run"}


def named(name: str, **conditions: str) -> Callable[[Lines], None]:
    """Change the adapter's name everywhere, and state conditions in each check."""

    def change(lines: Lines) -> None:
        lines[0]["inventory"]["accelerators"][0]["model"] = name
        lines[0]["machine"] = machine_of(name)
        for line in lines[1:-1]:
            line["accelerator"] = f"{name} through {line['conditions']['runtime']}"
            line["conditions"].update(adapter=name, **conditions)

    return change


def test_a_software_adapter_never_counts_as_a_gpu(tmp_path: Path) -> None:
    for number, told in enumerate(
        (
            {"vendor": "google", "architecture": "swiftshader"},
            {"fallback": True},
            {"description": "llvmpipe (LLVM 19, 256 bits)"},
        )
    ):
        facts = adapter(**told)
        kind = f"{facts['vendor']} {facts['architecture']}"

        def called(lines: Lines, kind: str = kind, **conditions: str) -> None:
            named(f"{kind} (software)", **conditions)(lines)
            lines[0]["inventory"]["accelerators"][0].update(device_type="software", model=kind)

        def stated(lines: Lines, told: dict[str, Any] = facts, called: Any = called) -> None:
            called(lines, stands_in=f"a software adapter ({told['architecture']}), not a GPU")

        with pytest.raises(BrokenInput, match="don't match its adapter"):
            merged(tmp_path, **told)
        with pytest.raises(BrokenInput, match="its conditions don't say so"):
            merged(tmp_path, called, **told)
        (run,) = read_folder(merged(tmp_path / f"said-{number}", stated, **told)).runs
        assert run.inventory["adapter"].items() >= told.items()


def test_a_device_that_was_only_requested_proves_no_gpu(tmp_path: Path) -> None:
    nameless = {"vendor": "", "architecture": ""}
    name, wish = "an adapter without a name", "the browser's own choice of adapter, of which it tells no name"
    with pytest.raises(BrokenInput, match="only requested"):
        merged(tmp_path, named(name), **nameless)
    assert read_folder(merged(tmp_path / "stated", named(name, requested=wish), **nameless)).checks

    def unsaid(lines: Lines) -> None:
        for line in lines[1:-1]:
            del line["conditions"]["requested"]

    def of_a_processor(lines: Lines) -> None:
        lines[0]["inventory"]["adapter"]["kind"] = "cpu"

    with pytest.raises(BrokenInput, match="only requested"):
        merged(tmp_path, unsaid, device="webnn:npu")
    with pytest.raises(BrokenInput, match="of kind cpu, but npu was requested"):
        merged(tmp_path, of_a_processor, device="webnn:npu")
    assert read_folder(merged(tmp_path / "said", device="webnn:npu")).checks


def test_the_browser_of_a_page_expires_nothing() -> None:
    here = {"chromium (webgpu)": "150", "playwright": "1.65", "torch": "2.13"}
    assert moved_versions({"torch": "2.13", BROWSER_OF_PAGE: "Safari 26"}, here) == ()
    assert moved_versions({"torch": "2.12", BROWSER_OF_PAGE: "Safari 26"}, here) == ("torch 2.12, now 2.13",)
    assert len(moved_versions({"torch": "2.13"}, here)) == 2
    cell = Cell.parse("bert/fill-mask/webgpu/float32")
    then = {name: version for name, version in versions_of(recorded()).items() if name not in DRIVEN}
    now = {**then, "chromium (webgpu)": "150", "playwright": "1.65"}
    assert expiry_reasons(cell, {**then, BROWSER_OF_PAGE: "Safari 26"}, now) == ()
    assert len(expiry_reasons(cell, then, now)) == 2
