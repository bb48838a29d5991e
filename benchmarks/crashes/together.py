"""Two concurrent runs that share all folders: both must be complete, as each would be alone."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hardware.evidence.latest import read_latest
from hardware.evidence.store import read_folder

from .checking import half_files, half_lines, incomplete, lost, read_raw, untold
from .kills import Undisturbed, look, suites_in
from .moments import CHECKS, MODELS
from .product import misread
from .result import Case, Result
from .running import Place, Process, Ran, run_to_end

_TIMES = {
    "the same run": 5,
    "other models": 3,
    "one is killed": 6,
    "resumed twice": 4,
    "other suites": 4,
    "compacted": 3,
}
_OWN_TOLERANCE = Path(__file__).with_name("own_tolerance.toml")
_OTHERS = ("t5", "vit", "bert")


def together_cases(seed: int) -> Iterator[Case]:
    """Return some cases of each way of sharing: the runs start together and diverge by chance."""
    ways: dict[str, Callable[[Place, Undisturbed, random.Random], list[str]]] = {
        "the same run": _same,
        "other models": _other_models,
        "one is killed": _one_killed,
        "resumed twice": _resumed_twice,
        "other suites": _other_suites,
        "compacted": _compacted,
    }
    for kind, times in _TIMES.items():
        for number in range(times):
            chance = random.Random(f"{seed} {kind} {number}")
            name = f"together-{kind.replace(' ', '-')}-{seed}-{number}"
            yield Case(part="together", id=name, kind=kind, run=_Shared(ways[kind], chance))


class _Shared:
    """Run one case."""

    def __init__(self, way: Callable[[Place, Undisturbed, random.Random], list[str]], chance: random.Random) -> None:
        self.way = way
        self.chance = chance

    def __call__(self, folder: Path, undisturbed: Undisturbed) -> Result:
        """Run two processes in one folder and check."""
        place = Place(folder=folder)
        wrong = self.way(place, undisturbed, self.chance)
        evidence = read_folder(place.evidence)
        outcomes = Counter(str(line.outcome) for line in evidence.checks)
        facts = {"runs": len(evidence.runs), "passed": outcomes["passed"], "not_run": outcomes["not_run"]}
        return Result(facts=facts, wrong=wrong)


def _both(place: Place, *commands: Sequence[str]) -> list[Ran]:
    running = [Process(place, command, f"run{number}") for number, command in enumerate(commands)]
    return [one.wait() for one in running]


def _ended(rans: Sequence[Ran], *codes: int) -> list[str]:
    return [f"a run ended with {ran.code}: {ran.err[-300:]}" for ran in rans if ran.code not in codes]


def _runs_whole(place: Place, runs: int) -> list[str]:
    """Check that this many runs completed and passed their plans."""
    raw = read_raw(place.evidence)
    found = [] if len(raw.of_kind("run")) == runs else [f"{len(raw.of_kind('run'))} runs are on record, not {runs}"]
    for run in raw.of_kind("run"):
        own = [line for line in raw.of_kind("check") if line["run_id"] == run["run_id"]]
        planned = sum(len(cell["checks"]) for cell in run["plan"])
        passed = sum(line["outcome"] == "passed" for line in own)
        if not passed == len(own) == planned:
            found.append(f"{run['run_id']} planned {planned}, has {len(own)} lines and {passed} passes")
    return found


def _same(place: Place, undisturbed: Undisturbed, _chance: random.Random) -> list[str]:
    rans = _both(place, place.command(), place.command())
    raw = read_raw(place.evidence)
    return [*_ended(rans, 0), *_runs_whole(place, 2), *look(place, raw, undisturbed, [], killed=False)]


def _other_models(place: Place, _undisturbed: Undisturbed, _chance: random.Random) -> list[str]:
    rans = _both(place, place.command(), place.command(models=_OTHERS))
    raw = read_raw(place.evidence)
    suites = suites_in(place)  # another one is there
    wrong = [*lost(raw, place.folder / "log"), *half_lines(raw, killed=False), *untold(raw)]
    wrong += [*half_files(place.folder, suites), *misread(place.evidence, raw)]
    return [*_ended(rans, 0), *_runs_whole(place, 2), *wrong]


def _one_killed(place: Place, undisturbed: Undisturbed, chance: random.Random) -> list[str]:
    running = [Process(place, place.command(), f"run{number}") for number in range(2)]
    running[0].wait_until(chance.random() * 1.5 * undisturbed.seconds)  # Two concurrent runs take longer.
    if running[0].process.poll() is None:
        os.kill(running[0].process.pid, signal.SIGKILL)
    survivor = [one.wait() for one in running][1]
    raw = read_raw(place.evidence)
    wrong = [*_ended([survivor], 0), *look(place, raw, undisturbed, running[0].left_alive())]
    resumed = run_to_end(place, "--resume", name="resumed")
    after = read_raw(place.evidence)
    return [*wrong, *_ended([resumed], 0), *look(place, after, undisturbed, []), *_cells_whole(place)]


def _resumed_twice(place: Place, undisturbed: Undisturbed, chance: random.Random) -> list[str]:
    first = Process(place, place.command(), "first")
    first.wait_until((0.3 + 0.6 * chance.random()) * undisturbed.seconds)
    if first.process.poll() is None:
        os.kill(first.process.pid, signal.SIGKILL)
    first.wait()
    rans = _both(place, place.command("--resume"), place.command("--resume"))
    raw = read_raw(place.evidence)
    return [*_ended(rans, 0), *look(place, raw, undisturbed, []), *incomplete(raw, CHECKS)]


def _other_suites(place: Place, undisturbed: Undisturbed, chance: random.Random) -> list[str]:
    """Let the second run write other texts into the same files: the first run must not take suites that it didn't
    plan for its own."""
    config = place.folder / "hwcompat.toml"
    config.write_bytes(_OWN_TOLERANCE.read_bytes())
    other = [word for word in place.command() if word not in ("--model", "--device", "cpu", *MODELS)]
    running = [Process(place, place.command(), "run0")]
    running[0].wait_until(chance.random() * 0.5 * undisturbed.seconds)
    running.append(Process(place, [*other, "--config", str(config)], "run1"))
    rans = [one.wait() for one in running]
    raw = read_raw(place.evidence)
    wrong = [*lost(raw, place.folder / "log"), *half_lines(raw, killed=False), *untold(raw)]
    wrong += misread(place.evidence, raw)
    not_run = [line for line in raw.of_kind("check") if line["outcome"] == "not_run"]
    others = [line for line in raw.of_kind("check") if line["outcome"] not in ("passed", "not_run")]
    wrong += [f"{line['cell_id']} {line['check_name']} is {line['outcome']}" for line in others]
    wrong += [line["error_message"] for line in not_run if "after planning" not in line["error_message"]]
    return [*wrong, *_ended(rans, 0, 1)]


def _compacted(place: Place, undisturbed: Undisturbed, chance: random.Random) -> list[str]:
    """Compact evidence while a run writes to the same folder: its lines must stay."""
    first = run_to_end(place, name="first")
    running = Process(place, place.command(), "run")
    running.wait_until(chance.random() * undisturbed.seconds)
    folder = str(place.evidence)
    command = [sys.executable, "hardware_compatibility_reporter.py", "--compact", "--evidence", folder]
    compacted = Process(place, command, "compacted").wait()
    ran = running.wait()
    last = Process(place, command, "compacted again").wait()
    return [*_ended([first, ran, compacted, last], 0), *_in_parquet(place.evidence, runs=2)]


def _in_parquet(folder: Path, runs: int) -> list[str]:
    """Check that all lines of this many runs are in compacted or raw files, each once."""
    evidence = read_folder(folder)
    planned = sum(map(len, CHECKS.values()))
    found = [] if len(evidence.runs) == runs else [f"{len(evidence.runs)} runs are left of {runs}"]
    if len(evidence.checks) != runs * planned:
        found.append(f"{len(evidence.checks)} lines are left of {runs * planned}")
    return [*found, *(f"run {name} is not over" for name in read_latest(folder, details=True).unfinished)]


def _cells_whole(place: Place) -> list[str]:
    """Check that some run completed each cell."""
    return [text for text in incomplete(read_raw(place.evidence), CHECKS) if "never" in text]
