"""A lab machine over ssh: a line that is cut and processes that are killed; nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import LIMIT_S, CommandLine, Ran
from evidence_lines import BERT_CHECKS
from lab_server import Lab, lab_server
from suites_by_hand import wait_until

from hardware.evidence.record import Outcome
from hardware.evidence.store import Evidence, read_folder

BERT = "bert/fill-mask/cpu/float32"
GPT2 = "gpt2/text-generation/cpu/float32"
T5 = "t5/text2text-generation/cpu/float32"
THREE = ("--model", "bert", "--model", "gpt2", "--model", "t5", "--device", "cpu", "--run", "--jobs", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_server(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(server: Lab) -> Iterator[Lab]:
    """The machine as if nobody had used it before."""
    server.forget()
    server.line.down = False
    yield server
    wait_until(lambda: not _is_at_work(server), wrong="the lab is still at work")


def _is_at_work(lab: Lab) -> bool:
    pids = [int(path.read_text()) for path in lab.folder.glob("runs/*/pid") if not (path.parent / "exit").exists()]
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def _begin(command_line: CommandLine, lab: Lab, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A run of three suites, one at a time, of which the first has left a line here."""
    process = command_line.start(folder, *lab.words(*THREE, *words), env=lab.ssh())

    def has_begun() -> bool:
        return any('"kind": "check"' in path.read_text() for path in (folder / "evidence").glob("*.jsonl"))

    wait_until(has_begun, process, "no line came here while it ran")
    return process


def _held(lab: Lab) -> int:
    """The run there, stopped in its middle, so that it can't be over before a test has done what it is about."""
    pid = _pid_there(lab)
    os.kill(pid, signal.SIGSTOP)
    assert not any(lab.folder.glob("runs/*/exit"))
    return pid


def _pid_there(lab: Lab) -> int:
    (path,) = lab.folder.glob("runs/*/pid")
    return int(path.read_text())


def _same(lab: Lab, ran: Ran) -> Evidence:
    """The evidence here, which is that of the lab to the byte, and holds each check of each run once."""
    here = {path.name: path.read_bytes() for path in (ran.folder / "evidence").glob("*.jsonl")}
    there = {
        path.name: path.read_bytes() for path in (lab.folder / "evidence").glob("*.jsonl") if path.stat().st_size
    }
    assert here == there
    evidence = read_folder(ran.folder / "evidence")
    assert evidence.broken == ()
    told = [(line.run_id, line.cell_id, line.check_name) for line in evidence.checks]
    assert len(told) == len(set(told))
    return evidence


def _all_passed(evidence: Evidence) -> None:
    passed = {line.cell_id for line in evidence.checks if line.outcome is Outcome.PASSED}
    assert passed == {BERT, GPT2, T5}


@pytest.mark.nightly
def test_suites_run_there_and_are_judged_here(command_line: CommandLine, lab: Lab, tmp_path: Path):
    words = lab.words("--model", "bert", "--model", "gpt2", "--device", "cpu", "--run", "--machine", "bench-7")
    ran = command_line.run(tmp_path, *words, env=lab.ssh())
    assert ran.code == 0, ran.err
    assert (ran.verdict(BERT), ran.verdict(GPT2)) == ("high", "high")
    evidence = _same(lab, ran)
    (run,) = evidence.runs
    assert run.machine == "bench-7"
    assert all(cell.verdict and cell.verdict["basis"] == "predicted" for cell in run.plan), "sealed before it ran"
    assert f"[2/2] {GPT2}" in ran.err or f"[2/2] {BERT}" in ran.err
    assert any(ran.reports.glob("*.html"))
    (name,) = (path.name for path in (lab.folder / "packages").iterdir())

    again = command_line.run(tmp_path, *words, "--resume", env=lab.ssh())
    assert again.code == 0, again.err
    assert len(_same(lab, again).runs) == 1, "nothing was left to resume, so that nothing ran"
    assert again.verdict(BERT) == "high"
    assert [path.name for path in (lab.folder / "packages").iterdir()] == [name]

    anew = command_line.run(tmp_path, *words, env=lab.ssh())
    assert anew.code == 0, anew.err
    assert len(_same(lab, anew).runs) == 2, "asked for without --resume it runs anew"


@pytest.mark.extended
def test_a_line_that_is_cut_costs_nothing(command_line: CommandLine, lab: Lab, tmp_path: Path):
    process = _begin(command_line, lab, tmp_path)
    pid = _held(lab)
    lab.line.down = True
    lab.line.cut()
    wait_until(lambda: "the connection to lab broke" in (tmp_path / "err").read_text(), wrong="no note")
    assert _is_at_work(lab), "the run goes on without the line"
    os.kill(pid, signal.SIGCONT)
    lab.line.down = False
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    assert "connected to lab again" in ran.err
    evidence = _same(lab, ran)
    assert len(evidence.runs) == 1
    _all_passed(evidence)


@pytest.mark.extended
def test_a_command_that_was_killed_finds_its_run_again(command_line: CommandLine, lab: Lab, tmp_path: Path):
    process = _begin(command_line, lab, tmp_path)
    pid = _held(lab)
    process.kill()
    process.wait()
    assert read_folder(tmp_path / "evidence").checks, "what had come is here"
    assert _is_at_work(lab), "the run goes on without the command"
    other = command_line.run(
        tmp_path / "other", *lab.words("--model", "bert", "--device", "cpu", "--run"), env=lab.ssh()
    )
    assert other.code == 4
    assert "lab is busy with another run: running since" in other.error
    again = command_line.start(tmp_path, *lab.words(*THREE), env=lab.ssh())
    followed = "following that run"
    wait_until(lambda: followed in (tmp_path / "err").read_text(), wrong="the run wasn't found")
    os.kill(pid, signal.SIGCONT)
    ran = command_line.wait(again, tmp_path)
    assert ran.code == 0, ran.err
    evidence = _same(lab, ran)
    assert len(evidence.runs) == 1
    _all_passed(evidence)


@pytest.mark.extended
def test_what_ended_unseen_is_fetched_and_not_run_again(command_line: CommandLine, lab: Lab, tmp_path: Path):
    process = _begin(command_line, lab, tmp_path, "--host-patience", "1")
    lab.line.down = True
    lab.line.cut()
    lost = command_line.wait(process, tmp_path)
    assert lost.code == 2
    assert "the connection to lab is lost" in lost.error
    assert "Repeat the command to fetch the rest" in lost.error
    wait_until(lambda: any(lab.folder.glob("runs/*/exit")), wrong="the run didn't end there")
    lab.line.down = False
    ran = command_line.run(tmp_path, *lab.words(*THREE, "--host-patience", "1"), env=lab.ssh())
    assert ran.code == 0, ran.err
    assert "an earlier run on lab ended: fetching its evidence" in ran.err
    evidence = _same(lab, ran)
    assert len(evidence.runs) == 1
    _all_passed(evidence)


@pytest.mark.extended
def test_a_run_that_is_killed_there_goes_on_where_it_was_cut_off(command_line: CommandLine, lab: Lab, tmp_path: Path):
    process = _begin(command_line, lab, tmp_path)
    wait_until(
        lambda: f"{BERT}  {BERT_CHECKS} passed" in (tmp_path / "err").read_text(), wrong="the first suite didn't end"
    )
    os.kill(_pid_there(lab), signal.SIGKILL)
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 0, ran.err
    assert "was interrupted (signal 9): running the rest" in ran.err
    evidence = _same(lab, ran)
    first, second = sorted(evidence.runs, key=lambda run: run.started_at)
    assert second.resumes == (first.run_id,)
    assert BERT not in {cell.cell_id for cell in second.plan}, "what was shown isn't run again"
    _all_passed(evidence)
    assert ran.verdict(BERT) == "high"


@pytest.mark.extended
def test_a_run_that_dies_again_and_again_is_given_up(command_line: CommandLine, lab: Lab, tmp_path: Path):
    words = ("--model", "bert", "--device", "cpu")
    command_line.run(tmp_path, *words)
    (suite,) = (tmp_path / "suites").glob("test_bert*.py")
    kills = "import os\n\n\ndef test_kills(case):\n    os.kill(os.getppid(), 9)\n"
    suite.write_text(f"{suite.read_text()}\n{kills}")
    ran = command_line.run(tmp_path, *lab.words(*words, "--run"), env=lab.ssh())
    assert ran.code == 2
    assert "the run on lab was killed 3 times" in ran.error
    assert ran.verdict(BERT) != "high"
    assert len(_same(lab, ran).runs) == 3


@pytest.mark.extended
def test_ctrl_c_ends_the_run_there(command_line: CommandLine, lab: Lab, tmp_path: Path):
    process = _begin(command_line, lab, tmp_path)
    pid = _held(lab)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping the run on lab" in (tmp_path / "err").read_text(), wrong="no note")
    os.kill(pid, signal.SIGCONT)
    ran = command_line.wait(process, tmp_path)
    assert ran.code == 2
    assert "note: stopping the run on lab" in ran.err
    assert "the run on lab was interrupted" in ran.error
    assert "Continue with the same command and --resume." in ran.error
    assert not _is_at_work(lab)
    (end,) = _same(lab, ran).ends
    assert end.reason == "interrupted"
    resumed = command_line.run(tmp_path, *lab.words(*THREE, "--resume"), env=lab.ssh())
    assert resumed.code == 0, resumed.err
    _all_passed(_same(lab, resumed))


@pytest.mark.extended
def test_auto_and_the_list_of_devices_are_of_that_machine(command_line: CommandLine, lab: Lab, tmp_path: Path):
    listed = command_line.run(tmp_path, *lab.words("--list-devices", "--format", "json"), env=lab.ssh())
    assert listed.code == 0, listed.err
    assert '"detection_failure": ""' in listed.out
    bare = ("--host", "lab", "--host-python", _without_torch(), "--model", "bert", "--list")
    cells = command_line.run(tmp_path, *bare, env=lab.ssh())
    assert cells.out.split() == [BERT], "no OpenVINO is installed for that Python"


def _without_torch() -> str:
    python = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([python, "-c", "import torch"], capture_output=True, timeout=LIMIT_S)
    if done.returncode == 0:
        pytest.skip("the Python that this one was made from has torch too")
    return str(python)


def test_a_host_that_cannot_be_used_is_an_error_with_its_cause(command_line: CommandLine, lab: Lab, tmp_path: Path):
    config = lab.root / "config"
    text = config.read_text(encoding="ascii")
    other_key = f"IdentityFile={lab.root}/other_key"
    for options, words, reason in (
        (["-o", "UserKnownHostsFile=/dev/null"], [], "its host key is unknown"),
        (["-o", other_key], [], "it needs a password"),
        ([], ["--host-python", "no/such/python"], "that Python doesn't exist"),
    ):
        config.write_text(text.replace("own_key", "other_key") if other_key in options else text, encoding="ascii")
        asked = lab.words("--model", "bert", "--device", "cpu", "--run", *words)
        try:
            ran = command_line.run(tmp_path, *asked, env=lab.ssh(*options))
        finally:
            config.write_text(text, encoding="ascii")
        assert ran.code == 4
        assert f"lab cannot be used: {reason}" in ran.error
        assert not (tmp_path / "suites").exists(), "nothing was begun"


@pytest.mark.extended
def test_words_for_that_machine_are_data_there(command_line: CommandLine, lab: Lab, tmp_path: Path):
    ran = command_line.run(
        tmp_path,
        *lab.words("--host-python", "python3; touch planted", "--list-devices"),
        env=lab.ssh(),
    )
    assert ran.code == 4
    assert "that Python doesn't exist" in ran.error
    named = lab.words("--model", "bert", "--device", "cpu", "--run", "--machine", "$(touch planted) 'x")
    ran = command_line.run(tmp_path, "--host", "lab:a folder $(touch planted)", *named[2:], env=lab.ssh())
    assert ran.code == 0, ran.err
    assert ran.run_line.machine == "$(touch planted) 'x"
    assert [path.name for path in lab.home.iterdir() if "planted" in path.name] == ["a folder $(touch planted)"]
