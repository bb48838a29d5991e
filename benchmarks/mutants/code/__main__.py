"""`python -m benchmarks.mutants.code`: run tests on our own code with one fault each."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import click

from hardware.command_line import run_command_line
from hardware.errors import BrokenInput, UsageError, echo
from hardware.safe_read import reason_of

from ..results import KILLED
from .copies import Copy, tree_copy
from .covering import Covering, measure, unseen
from .drawing import SEED, CodeMutant, frozen
from .killing import Answer, Status, ask, ask_again

JOBS = 2


@click.group()
def main() -> None:
    """Test mutants of our own code."""


@main.command(name="list")
def list_mutants() -> None:
    """List each mutant with its site."""
    for one in frozen():
        click.echo(f"{one.name}  {one.operator}  {one.file} {one.where}: {one.old[:40]!r} -> {one.new[:40]!r}")


@main.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--tests", multiple=True, help="Only this file of tests, beside what OUT has; may be repeated.")
def cover(out: Path, tests: tuple[str, ...]) -> None:
    """Run all tests once, and write to OUT which of them cover each line. Fix failing tests first: they would detect
    every fault."""
    with tree_copy() as copy:
        click.echo(measure(copy, out, tests), err=True)


@main.command()
@click.argument("covering", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="One line of JSON each.")
@click.option("--name", "names", multiple=True, help="A mutant, or an area; may be repeated.")
@click.option("--draw", "drawn", type=click.IntRange(min=1), help="So many of them, drawn by seed.")
@click.option("--clean", type=click.IntRange(min=0), default=0, show_default=True, help="Runs without a fault.")
@click.option("--survivors", is_flag=True, help="Those alone that lived as OUT has it; their lines are replaced.")
@click.option("--near", is_flag=True, help="Ask only tests that come by the line in their own process.")
def run(
    covering: Path, out: Path, names: tuple[str, ...], drawn: int | None, clean: int, survivors: bool, near: bool
) -> int:
    """Make each fault in a copy of the tree and run the tests. COVERING is a file of `cover`.

    Tests that run the whole product are slow: use --near first, then --survivors.
    Exit code 1 if a mutant survives, or if a clean run fails.
    """
    before = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.is_file() else []
    clean_runs = [one for one in before if one["status"] in (Status.CLEAN, Status.FALSE_ALARM)]
    alive = {one["mutant"] for one in before if one["status"] == Status.SURVIVED}
    done = {one["mutant"] for one in before if one not in clean_runs} - (alive if survivors else set())
    chosen = [
        one
        for one in frozen()
        if (not names or one.name in names or one.area in names)
        and (one.name in alive if survivors else one.name not in done)
    ]
    if drawn:
        chosen = random.Random(SEED).sample(chosen, min(drawn, len(chosen)))
    if not chosen and not clean:
        raise UsageError("nothing is left to be asked", fix="Name another OUT, or other mutants.")
    kept = [one for one in before if one["mutant"] in done or one in clean_runs]
    out.write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")
    tests = Covering.read(covering)
    order = [(one, False) for one in chosen]
    order += [(one, True) for one in random.Random(SEED).sample(frozen(), clean)]
    bad = 0

    def judge(copy: Copy, asked: tuple[CodeMutant, bool]) -> Answer:
        return ask(copy, asked[0], tests, () if near else unseen(asked[0].file), clean=asked[1], near=near)

    for answer in _answers(judge, order):
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(answer)) + "\n")
        bad += answer.status in (Status.SURVIVED, Status.FALSE_ALARM)
    return 1 if bad else 0


@main.command()
@click.argument("results", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--draw", "drawn", default=24, show_default=True, type=click.IntRange(min=1), help="So many, by seed.")
def again(results: Path, drawn: int) -> int:
    """Make faults again that a unit test detected in RESULTS, and run only that test.

    Exit code 1 if one isn't detected, or if over half of the sites are gone. `make test` shows that these tests pass
    without a fault.
    """
    try:
        rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        seen = {
            one["mutant"]: one["by"]
            for one in rows
            if one["by"].startswith(("test/core/", "test/unit/")) and one["status"] in KILLED
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(results.name)} isn't what `run` writes", why=reason_of(error)) from error
    chosen = [one for one in frozen() if one.name in seen]
    chosen = random.Random(SEED).sample(chosen, min(drawn, len(chosen)))
    found = [one.status for one in _answers(lambda copy, one: ask_again(copy, one, seen[one.name]), chosen)]
    count = Counter(found)
    click.echo(", ".join(f"{number} {status}" for status, number in sorted(count.items())))
    return 1 if count[Status.SURVIVED] or 2 * count[Status.GONE] > len(found) else 0


Asked = TypeVar("Asked")


def _answers(judge: Callable[[Copy, Asked], Answer], order: Sequence[Asked]) -> Iterator[Answer]:
    """Yield the result of each mutant as it ends, from two concurrent copies of the tree."""
    with tree_copy() as one, tree_copy() as other, ThreadPoolExecutor(JOBS) as pool:
        free: SimpleQueue[Copy] = SimpleQueue()
        free.put(one)
        free.put(other)

        def judged(asked: Asked) -> Answer:
            copy = free.get()
            try:
                return judge(copy, asked)
            finally:
                free.put(copy)

        waiting = [pool.submit(judged, asked) for asked in order]
        for number, ended in enumerate(as_completed(waiting), start=1):
            answer = ended.result()
            click.echo(
                f"{number}/{len(order)} {answer.mutant} {answer.status} {answer.seconds:.0f} s "
                f"{answer.by or answer.message}",
                err=True,
            )
            yield answer


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.mutants.code"))
