"""Runs that are cut off: what was recorded stays true, nothing goes on in the dark, and the folder stays readable."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import CommandLine, Ran
from suites_by_hand import process_id, put_sleeping_suite

from hardware.evidence.latest import read_latest
from hardware.evidence.record import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

BERT, VIT = "bert/fill-mask/cpu/float32", "vit/image-classification/cpu/float32"
EARLIER = (
    b'{"kind": "end", "schema_version": 1, "run_id": "earlier", "ended_at": "", "reason": "finished", "counts": {}}\n'
)


def _is_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8"):
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def _cut_off(command_line: CommandLine, folder: Path, number: signal.Signals) -> tuple[Ran, bool]:
    """Run two suites and send a signal while the first one sleeps. Returns also whether the child is gone."""
    (folder / "evidence").mkdir()
    (folder / "evidence" / "earlier-1.jsonl").write_bytes(EARLIER)
    ready = put_sleeping_suite(folder, BERT)
    models = ("--model", "bert", "--model", "vit")
    process = command_line.start(folder, *models, "--device", "cpu", "--run", "--jobs", "1")
    pid = process_id(ready, process)
    process.send_signal(number)
    ran = command_line.wait(process, folder)
    return ran, _is_gone(pid)


@pytest.fixture(scope="module")
def cut_off(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ran, bool]]:
    """Every way of being cut off, two at a time."""
    ways = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    with ThreadPoolExecutor(max_workers=2) as pool:
        started = {
            way.name: pool.submit(_cut_off, command_line, tmp_path_factory.mktemp(way.name), way) for way in ways
        }
        return {name: future.result() for name, future in started.items()}


def test_an_interruption_closes_the_record_and_leaves_no_process(cut_off: dict[str, tuple[Ran, bool]]) -> None:
    for how in ("SIGINT", "SIGTERM"):
        ran, gone = cut_off[how]
        assert (how, ran.code, gone) == (how, 2, True)
        assert ran.error.startswith("error: interrupted: ")
        assert "the others are not_run" in ran.error
        assert "Evidence" in ran.out  # what was shown by then is shown
        assert ran.outcomes(BERT) == {
            "first": Outcome.AMBIGUOUS,
            "second": Outcome.NOT_RUN,
            "third": Outcome.NOT_RUN,
        }
        assert set(ran.outcomes(VIT).values()) == {Outcome.NOT_RUN}
        planned = {(one.cell_id, check) for one in ran.run_line.plan for check in one.checks}
        assert {(line.cell_id, line.check_name) for line in ran.evidence.checks} == planned
        end = next(end for end in ran.evidence.ends if end.run_id == ran.run_line.run_id)
        assert end.reason == "interrupted"
        assert sum(end.counts.values()) == len(planned)
        assert read_latest(ran.evidence, details=True).unfinished == ()
        assert (ran.folder / "evidence" / "earlier-1.jsonl").read_bytes() == EARLIER


def test_a_killed_run_takes_its_child_along_and_is_unfinished(cut_off: dict[str, tuple[Ran, bool]]) -> None:
    ran, gone = cut_off["SIGKILL"]
    assert (ran.code, gone) == (-signal.SIGKILL, True)
    assert read_latest(ran.evidence, details=True).unfinished == (ran.run_line.run_id,)
    assert ran.outcomes(BERT) == {"first": Outcome.AMBIGUOUS}  # and nothing is said of what wasn't reached
    assert (ran.folder / "evidence" / "earlier-1.jsonl").read_bytes() == EARLIER
