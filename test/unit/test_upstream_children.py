"""transformers' own tests in child processes: no outcome is lost, and the file that names the device."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from hardware.backends import factory
from hardware.backends._torch import TorchBackend
from hardware.backends.factory import resolve_target
from hardware.errors import BackendUnavailable, NothingMatched, UsageError
from hardware.evidence.record import Outcome
from hardware.target import Target
from hwcompat.cli.device_commands import devices_group as main
from hwcompat.plugins.triage.upstream import children
from hwcompat.plugins.triage.upstream.children import FileRun, run_file
from hwcompat.plugins.triage.upstream.device_spec import spec_name, spec_text, torch_backend

ROOT = Path(__file__).parents[2]

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


def test_outcomes_are_those_of_the_tests_that_ended(run):
    one, two, three = NAMES
    found = run(SESSION, COLLECTED, *(said for name in NAMES for said in (began(name), ended(name))), OVER)
    assert outcomes(found) == dict.fromkeys(NAMES, "passed")
    assert list(outcomes(found)) == NAMES
    assert not found.interrupted
    found = run(SESSION, COLLECTED, began(one), ended(one), OVER)  # pytest didn't reach the others
    assert outcomes(found) == {one: "passed", two: "not_run", three: "not_run"}
    found = run(SESSION, COLLECTED, began(one), ended(one))  # and this child ended without a word
    assert outcomes(found)[one] == "passed"
    assert list(outcomes(found).values()).count("passed") == 1


def test_a_test_that_hangs_is_ended_and_the_others_go_on(run):
    one, two, three = NAMES
    rest = (began(two), ended(two), began(three), ended(three), OVER)
    found = run(SESSION, COLLECTED, began(one), at("hang", one), *rest, timeout_s=0.3)
    assert outcomes(found) == {one: "timeout", two: "passed", three: "passed"}


def test_after_a_crash_a_new_child_goes_on_with_what_is_left(run):
    one, two, three = NAMES
    found = run(
        SESSION, COLLECTED, began(one), ended(one), began(two), at("die", two), began(three), ended(three), OVER
    )
    assert outcomes(found) == {one: "passed", two: "crashed", three: "passed"}
    assert "SIGABRT" in found.found[two].message


def test_a_device_that_ends_every_child_is_given_up(run):
    names = [f"A::{number}" for number in range(8)]
    deaths = [one for name in names for one in (began(name), at("die", name))]
    found = run(SESSION, {"kind": "collected", "tests": names}, *deaths, OVER)
    assert [test.outcome for test in found.tests].count(Outcome.CRASHED) == children.MOST_BREAKDOWNS
    assert found.tests[-1].error_type == "device_lost"


def test_no_test_is_an_error_with_its_cause(run):
    missing = "E   ModuleNotFoundError: No module named 'parameterized'"
    nothing = r"collected"
    for said, error, words in (
        ((SESSION, {"kind": "collected", "tests": []}, OVER), NothingMatched, nothing),
        ((SESSION, OVER), NothingMatched, nothing),
        ((SESSION,), NothingMatched, nothing),
        ((), NothingMatched, nothing),
        (
            (SESSION, {"kind": "unreadable", "reason": f"x\n{missing}"}),
            NothingMatched,
            r"(?s)collected.*No module named 'parameterized'\. .*hwcompat\[upstream\]",
        ),
        (({"kind": "refused", "reason": "no such chip"},), BackendUnavailable, "no such chip"),
    ):
        with pytest.raises(error, match=words):
            run(*said)


def test_a_test_that_ran_on_another_device_counts_for_nothing(run):
    elsewhere = {**SESSION, "torch_device": "cuda"}
    for session, device, counts in (
        (elsewhere, "cpu", False),
        (SESSION, "cuda", False),
        (SESSION, "cpu:0", True),
        (SESSION, None, True),  # a module that names no device: the session does
    ):
        one = NAMES[0]
        said = (session, {"kind": "collected", "tests": [one]}, began(one), ended(one, device=device), OVER)
        if counts:
            assert outcomes(run(*said)) == {one: "passed"}
        else:
            with pytest.raises(BackendUnavailable, match="ran on cuda, not on cpu"):
                run(*said)


# The file that names the device


def test_every_torch_target_has_a_file_that_parses_and_names_it(monkeypatch):
    class Chip(TorchBackend):
        BACKEND_NAME = DEVICE_TYPE = "chip"

    monkeypatch.setattr(factory.TARGETS, "added", lambda: {"chip": SimpleNamespace(load=lambda: Chip)})
    functions = {"MANUAL_SEED_FN", "EMPTY_CACHE_FN", "DEVICE_COUNT_FN"}
    for name in ("cpu", "cuda", "rocm", "mps", "xpu", "simulated", "chip"):
        text = spec_text(resolve_target(name))
        names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        assert f'get_backend("{name}")' in text
        assert names == (set() if name == "cpu" else functions)  # of the host's kind there is no accelerator
    assert torch_backend(Target.parse("cuda:0")).DEVICE_TYPE == "cuda"
    for target, words in (
        ("openvino", "can't run on openvino"),
        ("qnn", "can't run on qnn"),
        ("cuda:1", "without an index"),
    ):
        with pytest.raises(UsageError, match=words):
            torch_backend(Target.parse(target))


def test_the_file_of_the_simulated_device_registers_it_where_it_is_imported(tmp_path):
    target = resolve_target("simulated")
    (tmp_path / spec_name(target)).write_text(spec_text(target))
    code = f"""
import {spec_name(target).removesuffix(".py")} as spec, torch
made = torch.ones(2, device=spec.DEVICE_NAME)
spec.MANUAL_SEED_FN(3)
first = torch.rand(2)
spec.MANUAL_SEED_FN(3)
print(made.device, spec.DEVICE_COUNT_FN(), spec.EMPTY_CACHE_FN(), torch.equal(first, torch.rand(2)))
"""
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout.split(), done.returncode) == (["simulated:0", "1", "None", "True"], 0), done.stderr


def test_the_file_of_a_device_that_is_not_here_says_why():
    if not factory.get_backend("cuda").unavailable():
        pytest.skip("a CUDA device is here")
    with pytest.raises(Exception, match=r"cuda can't be used: .*CUDA"):
        exec(spec_text(resolve_target("cuda")), {})


def test_the_file_can_be_printed_and_written(tmp_path):
    printed = CliRunner().invoke(main, ["device-spec", "nvidia"])
    assert printed.output == spec_text(Target(name="cuda"))
    path = tmp_path / "spec.py"
    assert CliRunner().invoke(main, ["device-spec", "simulated", "--output", str(path)]).exit_code == 0
    assert path.read_text() == spec_text(Target(name="simulated"))
    assert isinstance(CliRunner().invoke(main, ["device-spec", "qnn"]).exception, UsageError)
