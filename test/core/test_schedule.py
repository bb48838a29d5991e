"""Which suites share a child, which children may run side by side, and with how many threads each.

What the warm parent of suites does to the garbage collector, and templates that are read once.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from generators.suites.user_templates import FolderAlone
from hardware.cell import Cell
from hardware.gc_control import uncollected
from hardware.inventory.system.processor import usable_cores
from hardware.target import Target
from hardware.testing import warm
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


def test_operators_share_a_child_where_one_child_runs_at_a_time() -> None:
    def operators(target: str) -> list[SuiteFile]:
        return [suite(f"aten.op{number}/operator/{target}/float32") for number in range(45)]

    for target, sizes in (("simulated", [20, 20, 5]), ("cuda", [20, 20, 5]), ("cpu", [1] * 45)):
        groups = groups_of(operators(target), ())
        assert [len(group.suites) for group in groups] == sizes
        assert {group.ends_on_failure for group in groups} == {len(sizes) == 3}
    (one,) = groups_of([tiny("bert", "simulated")], ())
    assert not one.ends_on_failure


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


@pytest.fixture
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_nothing_is_collected_while_much_is_imported_and_what_came_is_left_alone() -> None:
    gc.unfreeze()
    with uncollected():
        assert not gc.isenabled()
        came = [[]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(one is came for one in gc.get_objects())
    with pytest.raises(ImportError), uncollected():
        raise ImportError("broken")
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled(), "it is left as it was found"


@pytest.mark.usefixtures("collector")
def test_what_was_imported_is_frozen_before_pytest_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr(warm, "_warmed_here", False)
    monkeypatch.setattr(warm, "_import_all", lambda _suites: seen.append(("import", gc.isenabled())))
    monkeypatch.setattr(warm, "_warm_pytest", lambda: seen.append(("pytest", gc.get_freeze_count() > 0)))
    gc.unfreeze()
    warm.warm_up([])
    assert seen == [("import", False), ("pytest", True)]


def test_a_template_is_read_once_so_that_all_suites_of_a_command_are_made_from_the_same(tmp_path: Path) -> None:
    def environment() -> jinja2.Environment:
        return jinja2.Environment(loader=FolderAlone([tmp_path]), autoescape=True)

    file = tmp_path / "one.j2"
    file.write_text("first", encoding="utf-8")
    first = environment()
    assert first.get_template("one.j2").render() == "first"
    file.write_text("second", encoding="utf-8")
    os.utime(file, (1, 1))
    assert first.get_template("one.j2").render() == "first"
    assert environment().get_template("one.j2").render() == "second"
