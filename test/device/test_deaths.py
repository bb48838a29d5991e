"""Suites that die in several ways, a full disk, two runs in one folder: a few of what `make crashes` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.crashes import disks, together
from benchmarks.crashes.checking import half_lines, lost, read_raw, untold
from benchmarks.crashes.deaths import GOOD, TIMEOUT_S, deaths, judge, models_for, put_suites
from benchmarks.crashes.kills import Undisturbed, after_resuming, look, suites_in
from benchmarks.crashes.moments import Kill
from benchmarks.crashes.product import misread
from benchmarks.crashes.running import Place, Process, run_and_kill, run_to_end

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SOME = (
    *("segfault", "stack_overflow", "sigkill", "exit_0", "hang_in_c", "bad_alloc", "memory", "no_room"),
    "left_behind",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The suites that each run has to write; how long a run takes isn't asked here."""
    place = Place(folder=tmp_path_factory.mktemp("undisturbed"))
    assert Process(place, [word for word in place.command() if word != "--run"]).wait().code == 0
    return Undisturbed(seconds=0.0, suites=suites_in(place))


def test_each_death_is_told_as_what_it_is_and_loses_nothing(tmp_path: Path):
    place = Place(folder=tmp_path)
    found = models_for(deaths(SOME))
    command = place.command("--timeout", str(TIMEOUT_S), models=[*found, GOOD])
    Process(place, [word for word in command if word != "--run"], "generated").wait()
    put_suites(place.folder / "suites", found)
    running = Process(place, command)
    ran, alive = running.wait(), running.left_alive()
    judged = judge(place.evidence, found)
    assert set(judged) >= {*SOME, "its neighbour"}
    assert {name: wrong for name, wrong in judged.items() if wrong} == {}
    raw = read_raw(place.evidence)
    assert [*lost(raw, place.folder / "log"), *half_lines(raw, killed=False), *untold(raw)] == []
    assert misread(place.evidence, raw) == []
    assert (ran.code, alive) == (1, [])
    assert "Traceback" not in ran.err


@pytest.mark.extended
def test_a_child_killed_in_the_middle_of_a_line_loses_nothing_and_resume_ends_the_run(tmp_path, undisturbed):
    point = "line:gpt2/text-generation/cpu/float32/backward:half"
    place = Place(folder=tmp_path)
    killed = run_and_kill(place, Kill(number=0, victim="child", point=point), undisturbed.seconds)
    raw = read_raw(place.evidence)
    assert len(raw.torn) == 1
    assert look(place, raw, undisturbed, killed.left) == []
    ran = run_to_end(place, "--resume", name="resumed")
    assert after_resuming(place, raw, ran, undisturbed) == []


@pytest.mark.skipif(not disks.may_mount(), reason="a small disk can't be mounted here without rights")
@pytest.mark.extended
def test_a_full_disk_loses_nothing_blames_no_model_and_resume_ends_it(tmp_path, undisturbed):
    result = disks._Full("evidence", 16)(tmp_path, undisturbed)
    assert result.facts["exit"] == 4
    assert list(result.wrong) == []


@pytest.mark.extended
def test_two_runs_in_one_folder_are_both_whole(tmp_path, undisturbed):
    assert together._same(Place(folder=tmp_path), undisturbed, None) == []
