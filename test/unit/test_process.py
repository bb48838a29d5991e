"""Child processes: how they end, what they answer, and that they leave no process behind."""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware import process
from hardware.errors import HwCompatError, ModelRefused, NothingMatched
from hardware.process import DROPPED, PIPED, Answering, Child, Forked, NoAnswer, ask, run

pytestmark = pytest.mark.forks

STARTS_ANOTHER = """
import subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(other.pid, flush=True)
time.sleep({seconds})
"""
ASKED = """
import os, sys, time
from hardware.errors import BackendUnavailable, ModelRefused, NothingMatched
from hardware.process import answer

class Special(NothingMatched):
    pass

def respond(request):
    print("what a library prints is no answer")
    if request == "refused":
        raise ModelRefused("it is refused", why="its weights", fix="Use others.", error_type="odd_weights")
    if request == "special":
        raise Special("nothing")
    if request == "breaks":
        raise RuntimeError("no\\nsuch thing")
    if request == "dies":
        os.kill(os.getpid(), 9)
    if request == "hangs":
        time.sleep(600)
    return {"heard": request, "variable": os.environ.get("OURS")}

answer(respond)
"""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has waited for yet doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in "ZX"


def soon(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asked_module.py").write_text(ASKED, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "asked_module"


def test_a_command_is_run_to_its_end(tmp_path, monkeypatch):
    ended = run(python("import sys; print(input()); sys.stderr.write('a\\nlast one\\n'); sys.exit(3)"),
                limit_s=60, given=b"given\n")  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.timed_out) == (3, "given\n", False)
    assert ended.how == "ended with exit code 3"
    assert ended.last_line == "last one"
    assert run(python("import os; os.kill(os.getpid(), 9)"), limit_s=60).how == "ended with signal 9"
    with pytest.raises(FileNotFoundError):
        run(["no-such-command-here"], limit_s=5)
    with (tmp_path / "log").open("wb") as log:
        ended = run(["echo", "said"], limit_s=60, stdout=log, stderr=DROPPED)
    assert ended.stdout == ""
    assert (tmp_path / "log").read_text() == "said\n"


def test_input_and_output_may_be_longer_than_a_pipe_and_the_end_of_output_is_kept(monkeypatch):
    monkeypatch.setattr(process, "LONGEST_OUTPUT", 1000)
    ended = run(python("print('x' * 500_000); print('the end')"), limit_s=60, given=b"x" * 1_000_000)
    assert len(ended.stdout) == 1000
    assert ended.stdout.endswith("the end\n")


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started():
    ended = run(python(STARTS_ANOTHER.format(seconds=600)), limit_s=1)
    assert ended.timed_out
    assert ended.how == "timed out after 1 s"
    other = int(ended.stdout)
    assert soon(lambda: not is_alive(other))


def test_a_process_that_a_command_left_running_delays_nothing(monkeypatch):
    monkeypatch.setattr(process, "_LEFT_S", 0.1)
    ended = run(python(STARTS_ANOTHER.format(seconds=0)), limit_s=60)
    assert ended.returncode == 0
    assert ended.seconds < 30
    os.kill(int(ended.stdout), 9)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't limit data")
def test_memory_is_limited():
    ended = run(python("bytearray(2**30)"), limit_s=60, memory_bytes=2**28)
    assert ended.last_line == "MemoryError"


def test_a_child_is_ended_with_all_that_it_started():
    child = Child(python(STARTS_ANOTHER.format(seconds=600)), stdout=PIPED)
    assert child.stdout is not None
    other = int(child.stdout.readline())
    assert child.end() == -9
    assert child.end() == -9, "it may be ended twice"
    child.stdout.close()
    assert soon(lambda: not is_alive(other))
    child = Child(python("import time; time.sleep(600)"), own_session=False)
    assert os.getpgid(child.pid) == os.getpgid(0)
    assert child.end() == -9


def test_a_module_answers_and_what_it_prints_goes_to_a_log(asked, monkeypatch, tmp_path):
    monkeypatch.setenv("OURS", "x")
    assert ask(asked, [1, "ü"], limit_s=60) == {"heard": [1, "ü"], "variable": "x"}
    given = {name: value for name, value in os.environ.items() if name != "OURS"}
    assert ask(asked, 1, limit_s=60, environment=given) == {"heard": 1, "variable": None}
    log = tmp_path / "log"
    assert ask(asked, 1, limit_s=60, log=log)["heard"] == 1
    assert log.read_text() == "what a library prints is no answer\n"
    with pytest.raises(NoAnswer, match="code 1: such thing"):
        ask(asked, "breaks", limit_s=60, log=log)


def test_an_error_of_ours_arrives_as_it_was_raised(asked):
    with pytest.raises(ModelRefused) as caught:
        ask(asked, "refused", limit_s=60)
    assert str(caught.value) == "it is refused: its weights. Use others."
    assert caught.value.error_type == "odd_weights"
    with pytest.raises(HwCompatError) as caught:
        ask(asked, "special", limit_s=60)
    assert type(caught.value) is NothingMatched, "the class that both sides know"


def test_no_answer_says_why(asked):
    for request, limit_s, text in (
        ("breaks", 60, "the process ended with code 1: such thing"),
        ("dies", 60, "the process was ended by signal 9"),
        ("hangs", 1, "no answer within 1 s"),
    ):
        with pytest.raises(NoAnswer) as caught:
            ask(asked, request, limit_s=limit_s)
        assert str(caught.value) == text


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
def test_a_module_that_is_asked_does_not_outlive_who_asks(asked, tmp_path):
    here = tmp_path / "pid"
    code = f"from hardware.process import ask; ask({asked!r}, 'hangs', limit_s=600)"
    text = (tmp_path / f"{asked}.py").read_text()
    (tmp_path / f"{asked}.py").write_text(
        text.replace("time.sleep", f"open({str(here)!r}, 'w').write(str(os.getpid())), time.sleep")
    )
    child = Child(python(code), environment=process.with_product())
    assert soon(lambda: here.exists() and here.read_text() != "")
    os.kill(child.pid, 9)
    child.wait()
    assert soon(lambda: not is_alive(int(here.read_text())))


def test_a_forked_child_ends_with_what_its_work_returns_or_is_ended():
    child = Forked(lambda: 7)
    assert child.wait() == child.poll() == child.end() == 7
    assert Forked(lambda: 1 // 0).wait() == 1
    for own_session in (True, False):
        child = Forked(lambda: time.sleep(600) or 0, own_session=own_session)
        assert child.poll() is None
        assert child.end() == -9


def test_a_forked_child_answers_more_than_a_pipe_holds():
    opened = len(os.listdir("/proc/self/fd"))
    child = Answering(lambda: b"x" * 1_000_000)
    while not child.heard_all():
        select.select([child.reader], [], [], 10)
    assert len(child.heard) == 1_000_000
    child.end()
    child = Answering(lambda: b"x" * 1_000_000)
    assert len(child.answer_in(10, longest=2_000_000)) == 1_000_000
    assert len(os.listdir("/proc/self/fd")) == opened, "its pipes are closed"


def test_a_forked_child_that_says_too_much_or_nothing_is_ended():
    child = Answering(lambda: b"x" * 100_000_000)
    assert 10_000 < len(child.answer_in(10, longest=10_000)) < 10_000_000
    silent = Answering(lambda: time.sleep(600) or b"")
    assert silent.answer_in(0.2, longest=100) == b""
    assert silent.returncode == -9


class _Garbage:
    """A cycle that leaves a file when it is collected in another process than its own."""

    def __init__(self, left: Path) -> None:
        self.left, self.pid, self.cycle = left, os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            self.left.touch()


def test_a_forked_child_does_not_collect_the_garbage_of_its_parent(tmp_path: Path) -> None:
    gc.disable()
    try:
        _Garbage(tmp_path / "left")
        assert Forked(lambda: gc.collect() * 0).wait() == 0
    finally:
        gc.enable()
    assert not (tmp_path / "left").exists()
