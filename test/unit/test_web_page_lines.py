"""What no page writes is refused: another device than the one that is described, fields and numbers beyond all."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_page import Lines, adapter, context, edit, machine_of, made_page, merged, of, saved, written

from hardware.errors import BrokenInput
from hardware.evidence.merge import merge_evidence
from hardware.evidence.pages import keep_seal
from hardware.evidence.store import read_folder
from hardware.evidence.versions import BROWSER_OF_PAGE
from hardware.evidence.writer import machine_label

REFERENCE = "matches_reference"


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


NOT_OF_A_PAGE = {
    "this machine's own label": (own_machine, "machine: 'machine-"),
    "a machine of another browser": (another_browser, "named by its browser and device"),
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
    "passes where nothing runs": (whole_reason, "nothing runs here, and the check is passed"),
    "a reason alone": (only_a_reason, "named by its browser and device"),
    "software among the accelerators": (said_in_the_inventory, "aren't the adapter that it describes"),
    "software as a condition": (condition(adapter="google swiftshader (software)"), "its condition 'adapter'"),
    "software as the accelerator": (
        edit(REFERENCE, accelerator="google swiftshader (software)"),
        "isn't the device that its inventory describes",
    ),
    "a condition of its own": (condition(emulator="no"), "no page states emulator"),
    "another browser": (lambda lines: lines[0]["versions"].update({BROWSER_OF_PAGE: "Safari 26"}), "another browser"),
    "memory": (edit(REFERENCE, peak_memory_bytes=10**400), "'peak_memory_bytes' was unexpected"),
    "a field of a page to come": (lambda lines: lines[0].update(level="high"), "'level' was unexpected"),
    "a field of its end": (lambda lines: lines[-1].update(level="high"), "'level' was unexpected"),
    "an end for another reason": (lambda lines: lines[-1].update(reason="interrupted"), "'finished' was expected"),
    "a batch beyond all": (edit(REFERENCE, batch=10**30), "batch: "),
    "a batch that nobody sealed": (edit(REFERENCE, batch=3), "a batch or length that the page doesn't record"),
    "an error beyond numbers": (edit(REFERENCE, max_abs_error=10**400), "OverflowError"),
    "a latency beyond all": (edit(REFERENCE, latency_ms=1e300), "latency_ms: "),
    "an age for a duration": (edit(REFERENCE, duration_s=1e12), "duration_s: "),
    "an end at no moment": (lambda lines: lines[-1].update(ended_at="soon"), "'soon' is no moment"),
    "an end of another zone": (lambda lines: lines[-1].update(ended_at="2026-11-23T12:00+14:00"), "is no moment"),
    "an end before the beginning": (lambda lines: lines[-1].update(ended_at=ahead(-12)), "ended before it began"),
    "an end to come": (lambda lines: lines[-1].update(ended_at=ahead(23)), "yet to come"),
    "a check that is ahead": (edit(REFERENCE, started_at=ahead(23)), "yet to come"),
    "a file that the page hasn't": (
        lambda lines: lines[0]["page"]["hashes"].update({"../evil.js": "0" * 64}),
        "the page has no file '../evil.js'",
    ),
    "a beginning that its name doesn't have": (
        lambda lines: lines[0].update(started_at=ahead(-12)),
        "its run is named",
    ),
}


@pytest.mark.parametrize("what", NOT_OF_A_PAGE)
def test_what_no_page_writes_is_refused_with_the_reason(tmp_path: Path, what: str) -> None:
    change, reason = NOT_OF_A_PAGE[what]
    with pytest.raises(BrokenInput) as refused:
        merged(tmp_path, change)
    assert reason in str(refused.value), str(refused.value)
    assert not list((tmp_path / "evidence").glob("*.jsonl"))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"duration_s": 0.1', '"duration_s": 1e999', "1e999 is beyond what a number can be"),
        ('"outcome": "passed"', '"outcome": "failed", "outcome": "passed"', "'outcome' stands there twice"),
        ('"counts": {', '"counts": {"failed": 4, "failed": 0, ', "'failed' stands there twice"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(tmp_path: Path, before: str, after: str, reason: str) -> None:
    page = made_page()
    keep_seal(tmp_path / "evidence", page.text)
    path = saved(tmp_path, written(page))
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(BrokenInput) as refused:
        merge_evidence(path, tmp_path / "evidence")
    assert reason in str(refused.value), str(refused.value)


def test_where_nothing_can_run_nothing_ran_and_that_is_taken_in(tmp_path: Path) -> None:
    def nothing(lines: Lines) -> None:
        whole_reason(lines)
        lines[0]["page"]["hashes"] = {}
        for line in lines[1:-1]:
            line.update(outcome="not_run", error_type="device_absent", actual_target=None, actual_dtype=None)
        lines[-1]["counts"] = {"not_run": 5}

    evidence = read_folder(merged(tmp_path, nothing))
    assert {str(line.outcome) for line in evidence.checks} == {"not_run"}


SOFTWARE = [
    {"vendor": "google", "architecture": "swiftshader"},
    {"fallback": True},
    {"description": "llvmpipe (LLVM 19, 256 bits)"},
]


@pytest.mark.parametrize("told", SOFTWARE)
def test_a_software_adapter_never_counts_as_a_gpu(tmp_path: Path, told: dict[str, Any]) -> None:
    facts = adapter(**told)
    name = f"{facts['vendor']} {facts['architecture']} (software)"

    def called(lines: Lines) -> None:
        """All that the page says of it, but for what it stands for."""
        lines[0]["inventory"]["accelerators"][0]["device_type"] = "software"
        lines[0]["machine"] = machine_of(name)
        for line in lines[1:-1]:
            line["accelerator"] = f"{name} through {line['conditions']['runtime']}"
            line["conditions"]["adapter"] = name

    def said(lines: Lines) -> None:
        called(lines)
        for line in lines[1:-1]:
            line["conditions"]["stands_in"] = f"a software adapter ({facts['architecture']}), not a GPU"

    with pytest.raises(BrokenInput, match="aren't the adapter"):
        merged(tmp_path, **told)
    with pytest.raises(BrokenInput, match="stands for no GPU"):
        merged(tmp_path, called, **told)
    (run,) = read_folder(merged(tmp_path / "said", said, **told)).runs
    assert run.inventory["adapter"].items() >= told.items()


def test_an_adapter_that_isnt_named_proves_no_gpu(tmp_path: Path) -> None:
    nameless = {"vendor": "", "architecture": ""}

    def called(lines: Lines) -> None:
        name = "an adapter without a name"
        lines[0]["machine"] = machine_of(name)
        lines[0]["inventory"]["accelerators"][0]["model"] = name
        for line in lines[1:-1]:
            line["accelerator"] = f"{name} through {line['conditions']['runtime']}"
            line["conditions"]["adapter"] = name

    def said(lines: Lines) -> None:
        called(lines)
        for line in lines[1:-1]:
            line["conditions"]["requested"] = "the browser's own choice of adapter, of which it tells no name"

    with pytest.raises(BrokenInput, match="only requested"):
        merged(tmp_path, called, **nameless)
    assert read_folder(merged(tmp_path / "said", said, **nameless)).checks


def test_a_context_that_was_only_requested_says_so(tmp_path: Path) -> None:
    def unsaid(lines: Lines) -> None:
        for line in lines[1:-1]:
            del line["conditions"]["requested"]

    def of_a_processor(lines: Lines) -> None:
        lines[0]["inventory"]["adapter"]["kind"] = "cpu"

    with pytest.raises(BrokenInput, match="only requested"):
        merged(tmp_path, unsaid, device="webnn:npu")
    with pytest.raises(BrokenInput, match="of kind cpu, and npu was asked for"):
        merged(tmp_path, of_a_processor, device="webnn:npu")
    assert read_folder(merged(tmp_path / "said", device="webnn:npu")).checks
