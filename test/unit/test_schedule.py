"""Which suites share a child, which children may run side by side, and with how many threads each."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.cell import Cell
from hardware.inventory.system.processor import usable_cores
from hardware.target import Target
from hardware.testing.schedule import REAL_WEIGHTS, default_jobs, groups_of, next_group, threads_for
from hardware.testing.suite_file import SuiteFile

CPU, SIMULATED, OPENVINO = (Target(name=name) for name in ("cpu", "simulated", "openvino"))


def suite(cell: str, revision: str | None = None) -> SuiteFile:
    parsed = Cell.parse(cell)
    return SuiteFile(
        path=Path(f"test_{parsed.slug}.py"),
        cell=parsed,
        subject="checkpoint" if revision else "tiny",
        checks=("builds",),
        suite_hash="0",
        model_revision=revision,
    )


def tiny(model: str, target: str = "cpu") -> SuiteFile:
    return suite(f"{model}/fill-mask/{target}/float32")


def real(target: str, precision: str = "float32", revision: str = "abc") -> SuiteFile:
    return suite(f"real/fill-mask/{target}/{precision}", revision)


def test_each_tiny_model_has_a_child_of_its_own_in_the_order_of_the_plan():
    suites = [tiny("bert"), tiny("gpt2"), tiny("bert", "openvino")]
    assert [group.suites for group in groups_of(suites, {CPU, OPENVINO})] == [(one,) for one in suites]


def test_targets_and_precisions_of_one_checkpoint_share_a_child():
    mine = [real("cpu"), real("openvino"), real("cpu", "bfloat16")]
    suites = [mine[0], tiny("bert"), *mine[1:], real("cpu", revision="other")]
    groups = groups_of(suites, {CPU, OPENVINO})
    assert [group.suites for group in groups] == [tuple(mine), (suites[1],), (suites[4],)]


def test_what_cannot_be_forked_has_no_child_with_what_can():
    groups = groups_of([real("cpu"), real("openvino")], {CPU})
    assert [(len(group.suites), group.fork) for group in groups] == [(1, True), (1, False)]


@pytest.mark.parametrize(
    ("target", "shared"),
    [
        ("cpu", True),
        ("openvino", True),
        ("openvino:CPU", True),
        ("openvino:GPU", False),
        ("openvino:NPU", False),
        ("simulated", False),
        ("cuda", False),
        ("mps", False),
    ],
)
def test_only_the_hosts_processor_takes_several_suites_at_once(target, shared):
    groups = groups_of([tiny("bert", target), tiny("gpt2", target)], ())
    assert (next_group(groups[1:], groups[0].places) == 0) is shared


def test_a_suite_that_must_wait_lets_the_next_one_pass():
    groups = groups_of([tiny("bert", "cuda"), tiny("gpt2", "cuda"), tiny("t5")], ())
    assert next_group(groups[1:], groups[0].places) == 1
    assert next_group(groups[1:2], groups[0].places) is None


def test_two_checkpoints_are_not_in_memory_at_once():
    one, other = groups_of([real("cpu"), real("cpu", revision="other")], ())
    assert REAL_WEIGHTS in one.places & other.places


@pytest.mark.parametrize(
    ("suites", "cores", "jobs"),
    [
        ([tiny("bert")], 8, 1),
        ([tiny("bert"), tiny("gpt2"), tiny("t5")], 2, 2),
        ([tiny("bert"), tiny("gpt2"), tiny("t5")], 8, 3),
        ([tiny("bert", "cuda"), tiny("gpt2", "cuda")], 8, 1),
        ([tiny("bert", "cuda"), tiny("gpt2", "cuda"), tiny("t5")], 8, 2),
        ([real("cpu"), real("openvino"), real("cpu", revision="other")], 8, 1),
        ([], 8, 1),
    ],
)
def test_as_many_jobs_as_can_run_beside_each_other(suites, cores, jobs):
    assert default_jobs(suites, cores) == jobs


@pytest.mark.parametrize(
    ("jobs", "cores", "asked", "threads"),
    [
        (1, 8, "", 0),
        (1, 8, "4", 0),
        (2, 8, "", 4),
        (3, 8, "", 2),
        (4, 2, "", 1),
        (2, 8, "1", 1),
        (2, 8, "many", 4),
        (2, 8, "9" * 5000, 4),
        (2, 8, "٣", 4),
    ],
)
def test_jobs_times_threads_fit_the_cores_and_the_users_wish(jobs, cores, asked, threads):
    assert threads_for(jobs, cores, asked) == threads


def test_cores_are_those_that_this_process_may_run_on(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("sys.platform", "linux")
    assert usable_cores() == 1
    monkeypatch.setattr("sys.platform", "darwin")
    assert usable_cores() == 64
