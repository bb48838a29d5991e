"""Workers: processes of another Python that answer calls, fail by name, and are ended by their own id."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardware.workers import Worker, WorkerDied, WorkerError, WorkerTimeout
from hardware.workers.worker import SCRIPTS

OURS = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    do, arguments = request["do"], request["arguments"]
    if do == "hang":
        time.sleep(600)
    if do == "die":
        os.kill(os.getpid(), 11)
    if do == "run out":
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 6)
    if do == "fail":
        print("[E: libSomething.so: cannot open", file=sys.stderr, flush=True)
        answer = {"error": {"type": "ZeroDivisionError", "message": "division by zero"}}
    else:
        ours = [name for name in sys.modules if name in ("hardware", "hwcompat")]
        answer = {"result": {"pid": os.getpid(), "modules": ours}}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    script = tmp_path / "script.py"
    script.write_text(OURS, encoding="utf-8")
    with Worker(Path(sys.executable), timeout_s=30, script=script) as worker:
        yield worker


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def test_one_process_answers_several_calls_and_survives_an_error(worker: Worker) -> None:
    assert worker.pid is None, "nothing is started before the first call"
    first, second = worker.call("say"), worker.call("say")
    assert first["pid"] == second["pid"] == worker.pid
    assert first["modules"] == []
    with pytest.raises(WorkerError, match="division by zero") as caught:
        worker.call("fail")
    assert caught.value.error_type == "ZeroDivisionError"
    assert "libSomething.so" in caught.value.log
    assert worker.call("say")["pid"] == first["pid"]
    worker.close()
    assert not _is_alive(int(first["pid"]))


def test_after_a_call_that_hangs_or_dies_the_next_starts_anew(worker: Worker) -> None:
    before = int(worker.call("say")["pid"])
    with pytest.raises(WorkerTimeout, match=r"hang took longer than 0\.1 s"):
        worker.call("hang", timeout_s=0.1)
    assert not _is_alive(before)
    after = worker.call("say")["pid"]
    assert after != before
    with pytest.raises(WorkerDied, match=r"during die \(signal 11\)"):
        worker.call("die")
    with pytest.raises(WorkerDied, match=r"during run out \(signal 6\)") as caught:
        worker.call("run out")
    assert "bad_alloc" in caught.value.log
    assert worker.call("say")["pid"] != after


def test_the_shipped_script_reports_a_missing_module() -> None:
    script = SCRIPTS / "onnx_worker.py"
    with Worker(Path(sys.executable), timeout_s=60, script=script) as worker, pytest.raises(WorkerError) as caught:
        worker.call("describe", module="no_such_provider")
    assert caught.value.error_type == "ModuleNotFoundError"
    assert "no_such_provider" in caught.value.message
