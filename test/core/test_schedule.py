"""Which suites share a child, which children may run side by side, and with how many threads each."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.cell import Cell
from hardware.inventory.system.processor import usable_cores
from hardware.target import Target
from hardware.testing.schedule import REAL_WEIGHTS, default_jobs, groups_of, next_group, threads_for
from hardware.testing.suite_file import SuiteFile

CPU, OPENVINO = (Target(name=name) for name in ("cpu", "openvino"))


def suite(cell: str, revision: str | None = None) -> SuiteFile:
    parsed, weights = Cell.parse(cell), "checkpoint" if revision else "tiny"
    facts = {"path": Path(f"{parsed.slug}.py"), "checks": ("builds",), "suite_hash": "0"}
    return SuiteFile(cell=parsed, subject=weights, model_revision=revision, **facts)


def tiny(model: str, target: str = "cpu") -> SuiteFile:
    return suite(f"{model}/fill-mask/{target}/float32")


def real(target: str, precision: str = "float32", revision: str = "abc") -> SuiteFile:
    return suite(f"real/fill-mask/{target}/{precision}", revision)


def test_only_suites_of_one_checkpoint_that_can_be_forked_alike_share_a_child() -> None:
    suites = [tiny("bert"), tiny("gpt2"), tiny("bert", "openvino")]
    assert [group.suites for group in groups_of(suites, {CPU, OPENVINO})] == [(one,) for one in suites]
    mine = [real("cpu"), real("openvino"), real("cpu", "bfloat16")]
    suites = [mine[0], tiny("bert"), *mine[1:], real("cpu", revision="other")]
    groups = groups_of(suites, {CPU, OPENVINO})
    assert [group.suites for group in groups] == [tuple(mine), (suites[1],), (suites[4],)]
    groups = groups_of([real("cpu"), real("openvino")], {CPU})
    assert [(len(group.suites), group.fork) for group in groups] == [(1, True), (1, False)]


def test_only_the_hosts_processor_takes_several_suites_at_once() -> None:
    shared = []
    for target in ("cpu", "openvino", "openvino:CPU", "openvino:GPU", "openvino:NPU", "simulated", "cuda", "mps"):
        groups = groups_of([tiny("bert", target), tiny("gpt2", target)], ())
        shared += [target] if next_group(groups[1:], groups[0].places) == 0 else []
    assert shared == ["cpu", "openvino", "openvino:CPU"]


def test_a_suite_that_must_wait_lets_the_next_one_pass() -> None:
    groups = groups_of([tiny("bert", "cuda"), tiny("gpt2", "cuda"), tiny("t5")], ())
    assert next_group(groups[1:], groups[0].places) == 1
    assert next_group(groups[1:2], groups[0].places) is None
    one, other = groups_of([real("cpu"), real("cpu", revision="other")], ())
    assert REAL_WEIGHTS in one.places & other.places, "two checkpoints are not in memory at once"


def test_as_many_jobs_as_can_run_beside_each_other() -> None:
    three, on_cuda = [tiny("bert"), tiny("gpt2"), tiny("t5")], [tiny("bert", "cuda"), tiny("gpt2", "cuda")]
    checkpoints = [real("cpu"), real("openvino"), real("cpu", revision="other")]
    assert [default_jobs(three, cores) for cores in (2, 8)] == [2, 3]
    asked = ([tiny("bert")], on_cuda, [*on_cuda, tiny("t5")], checkpoints, [])
    assert [default_jobs(suites, 8) for suites in asked] == [1, 1, 2, 1, 1]


def test_jobs_times_threads_fit_the_cores_and_the_users_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [threads_for(jobs, cores, "") for jobs, cores in ((1, 8), (2, 8), (3, 8), (4, 2))] == [0, 4, 2, 1]
    assert threads_for(1, 8, "4") == 0
    assert [threads_for(2, 8, asked) for asked in ("1", "many", "9" * 5000, "٣")] == [1, 4, 4, 4]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    for platform, cores in (("linux", 1), ("darwin", 64)):  # those that this process may run on
        monkeypatch.setattr("sys.platform", platform)
        assert usable_cores() == cores
