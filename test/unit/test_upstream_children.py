"""The parent of upstream's tests, with children that tell what a plug-in would: nothing that ends early is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hardware.errors import BackendUnavailable, NothingMatched
from hardware.evidence.record import Outcome
from hardware.target import Target
from hwcompat.plugins.triage.upstream import children
from hwcompat.plugins.triage.upstream.children import FileRun, run_file

SESSION = {"kind": "session", "torch_device": "cpu", "device_name": "a CPU"}
NAMES = ["A::one", "A::two", "A::three"]
CHILD = """
import json, os, sys, time
from pathlib import Path

record = Path(os.environ["HWCOMPAT_UPSTREAM_RECORD"])
wanted = [one.partition("::")[2] for one in sys.argv[2:] if "::" in one]

def tell(**said):
    with record.open("a") as file:
        file.write(json.dumps(said) + chr(10))

for said in json.loads(sys.argv[1]):
    test = said.get("test")
    if test and wanted and test not in wanted:
        continue
    if said["kind"] == "hang":
        time.sleep(60)
    elif said["kind"] == "die":
        os.abort()
    else:
        tell(**said)
"""


def began(name: str) -> dict[str, Any]:
    return {"kind": "began", "test": name}


def ended(name: str, outcome: str = "passed", device: str | None = "cpu") -> dict[str, Any]:
    more = {"error_type": "", "message": "", "traceback": "", "duration_s": 0.1, "torch_device": device}
    return {"kind": "ended", "test": name, "outcome": outcome, **more}


def at(kind: str, name: str) -> dict[str, Any]:
    return {"kind": kind, "test": name}


COLLECTED = {"kind": "collected", "tests": NAMES}
OVER = {"kind": "over", "code": 0}


@pytest.fixture
def run(tmp_path, monkeypatch):
    def started(*said: dict[str, Any], timeout_s: float = 30) -> FileRun:
        script = tmp_path / "child.py"
        script.write_text(CHILD)
        command = [sys.executable, str(script), json.dumps(said)]
        monkeypatch.setattr(children, "_command", lambda checkout: command)
        return run_file(tmp_path, Path("test_modeling_x.py"), Target(name="cpu"), timeout_s=timeout_s)

    return started


def outcomes(found: FileRun) -> dict[str, str]:
    return {test.name: str(test.outcome) for test in found.tests}


def test_outcomes_are_taken_in_the_order_of_the_file(run):
    found = run(SESSION, COLLECTED, *(one for name in NAMES for one in (began(name), ended(name))), OVER)
    assert outcomes(found) == dict.fromkeys(NAMES, "passed")
    assert not found.interrupted


def test_after_a_crash_a_new_child_goes_on_with_what_is_left(run):
    one, two, three = NAMES
    found = run(
        SESSION, COLLECTED, began(one), ended(one), began(two), at("die", two), began(three), ended(three), OVER
    )
    assert outcomes(found) == {one: "passed", two: "crashed", three: "passed"}
    assert "SIGABRT" in found.found[two].message


def test_a_test_that_hangs_is_ended_and_the_others_go_on(run):
    one, two, three = NAMES
    found = run(
        SESSION,
        COLLECTED,
        began(one),
        at("hang", one),
        began(two),
        ended(two),
        began(three),
        ended(three),
        OVER,
        timeout_s=0.5,
    )
    assert outcomes(found) == {one: "timeout", two: "passed", three: "passed"}


def test_a_device_that_ends_every_child_is_given_up(run):
    names = [f"A::{number}" for number in range(8)]
    deaths = [one for name in names for one in (began(name), at("die", name))]
    found = run(SESSION, {"kind": "collected", "tests": names}, *deaths, OVER)
    assert [test.outcome for test in found.tests].count(Outcome.CRASHED) == children.MOST_BREAKDOWNS
    assert found.tests[-1].error_type == "device_lost"


def test_what_pytest_did_not_reach_is_not_run(run):
    found = run(SESSION, COLLECTED, began(NAMES[0]), ended(NAMES[0]), OVER)
    assert outcomes(found) == {NAMES[0]: "passed", NAMES[1]: "not_run", NAMES[2]: "not_run"}


def test_a_child_that_ends_without_a_word_leaves_no_pass(run):
    one, *_ = NAMES
    found = run(SESSION, COLLECTED, began(one), ended(one))
    assert outcomes(found)[one] == "passed"
    assert list(outcomes(found).values()).count("passed") == 1


@pytest.mark.parametrize(
    "said",
    [
        (SESSION, {"kind": "collected", "tests": []}, OVER),
        (SESSION, OVER),
        (SESSION,),
        (),
        (SESSION, {"kind": "unreadable", "reason": "x\nE   ModuleNotFoundError: No module named 'parameterized'"}),
    ],
)
def test_no_test_is_an_error_and_no_success(run, said):
    with pytest.raises(NothingMatched, match=r"collected"):
        run(*said)


def test_a_missing_package_names_the_command_that_installs_it(run):
    with pytest.raises(NothingMatched, match=r"No module named 'x'\. .*requirements-upstream\.txt"):
        run(SESSION, {"kind": "unreadable", "reason": "E   ModuleNotFoundError: No module named 'x'"})


def test_a_device_that_cannot_be_used_is_said(run):
    with pytest.raises(BackendUnavailable, match="no such chip"):
        run({"kind": "refused", "reason": "no such chip"})


@pytest.mark.parametrize(
    ("session", "device"), [({**SESSION, "torch_device": "cuda"}, "cpu"), (SESSION, "cuda"), (SESSION, "cpu:0")]
)
def test_where_a_test_ran_elsewhere_nothing_counts(run, session, device):
    said = (session, {"kind": "collected", "tests": NAMES[:1]}, began(NAMES[0]), ended(NAMES[0], device=device), OVER)
    if device == "cpu:0":
        assert outcomes(run(*said)) == {NAMES[0]: "passed"}
        return
    with pytest.raises(BackendUnavailable, match="ran on cuda, not on cpu"):
        run(*said)


def test_a_module_that_names_no_device_is_believed_by_the_session(run):
    said = (SESSION, {"kind": "collected", "tests": NAMES[:1]}, began(NAMES[0]), ended(NAMES[0], device=None), OVER)
    assert outcomes(run(*said)) == {NAMES[0]: "passed"}
