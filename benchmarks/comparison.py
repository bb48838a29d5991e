"""Print docs/measured/comparison.md: how runs are compared, with three runs made for the page.

`python -m benchmarks.comparison > docs/measured/comparison.md`. bert and gpt2 run on the simulated device, then with
a wrong matrix product, then bert runs alone without the fault. Takes two minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from hardware.evidence.versions import FAULT_VARIABLE

_ROOT = Path(__file__).resolve().parents[1]
_FAULT = "wrong:aten.addmm"
_RUN = ("run", "--device", "simulated", "--machine", "desk")
_ASK = "compare"
_RUNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--model", "bert", "--model", "gpt2"), ""),
    (("--model", "bert", "--model", "gpt2"), _FAULT),
    (("--model", "bert"), ""),
)
_SHOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "What broke from the first run to the second. The exit code is {code}: something got worse.",
        ("{0}", "{1}"),
    ),
    (
        "What is broken after the third run, in which bert alone ran, and since when. Exit code {code}.",
        ("last-green",),
    ),
    (
        "The last two runs, as Markdown: what got better, and what ran in one of them alone. Exit code {code}.",
        ("previous", "latest", "--format", "markdown"),
    ),
    (
        "A run that doesn't exist: the last runs, and what may be meant. Exit code {code}.",
        ("{0}x", "latest"),
    ),
)

_HEAD = """# What changed between two runs, and by what

`hwcompat compare` names the cause of each of the failures that are provoked below.

Made by `python -m benchmarks.comparison`, which runs what is shown here.

```
hwcompat compare A B              from A to B
hwcompat compare A                from A to the latest run
hwcompat compare last-green [B]   when what is broken now (as of B) was last green
hwcompat compare                  the last ten runs
```

A and B are a run's id or a beginning of it that no other run has, the name of a machine (`--machine NAME` of a
run), a folder of evidence, `latest`, or `previous`: the run before the other one on its machine with any of its
cells. `--machine NAME` selects one machine's runs, `--evidence DIR` the folder of evidence;
`--format` is text, markdown or json ([schema](../../reports/schemas/comparison.json)).

## What the words mean

- **green**: every planned check passed on the device that was asked for, judged by the versions and tolerances of
  that run. What ran on a substitute, with an edited suite, without its proofs, or is dated ahead, isn't green.
- **failed**: a check failed, and nothing says that it was elsewhere. **unknown**: neither; left out, ambiguous, not
  reached.
- **worse** (error): was green and isn't, another check fails, or nothing is known any more.
- **flaky** (warning): green and failed by turns, at least twice, in runs between which nothing that is recorded
  differs, whatever the last one showed. The newest 12 of such runs are looked at.
- **slower** (warning): as green as before, and weights of real size (config or checkpoint).
- **changed** (warning): the same state with fewer checks, smaller weights, a wider tolerance, a lower level, or
  another error.
- **never green**: with `last-green`, not green in any run of this machine.
- **better**, **new**, **gone** (a warning): green again; planned in the second alone; planned in the first alone.

`--fail-on` (default `error`) says from which severity on the exit code is 1. 0: nothing of that kind; 4: the
command line; 5: a word that names no run, or two sides without a cell in common.

A run speaks together with the runs that it resumed. A machine or a folder speaks with the newest run of each cell
that wasn't cut off there; each change then names what differs between its own two runs.

## How a cause is named

Candidates are the versions on which evidence of the cell's target depends ([EXPIRY.md](../EXPIRY.md)), the suite,
weights, tolerance, device, precision, conditions of the run, the machine and what it has. What follows from another
candidate stands with it: the configuration of another suite, the tolerance of other code of ours. Where there is
one candidate, it is named as the only one; versions that the target doesn't declare to depend on are no candidates,
and are listed if there is none. If nothing differs, the report says so: one more run shows whether it is flaky. A
candidate is no proof: what isn't recorded (a temperature, a library of the system, a file that was edited in place)
can't be named.

With `last-green` the two runs compared are the last green one and the first after it that showed what is so now, so
that what moved later isn't blamed.

A forward pass is timed once a run. Speed is judged only if five runs of each side are there between
which nothing differs, one suite at a time (`--jobs 1`), and every one of the newest five took longer than every one
of the five before. Of two single runs nothing is ever said.

## Three runs in which something broke
"""


def _command(arguments: tuple[str, ...], fault: str = "") -> str:
    before = f"{FAULT_VARIABLE}={fault} " if fault else ""
    return f"{before}hwcompat {' '.join(arguments)}"


def _run(folder: Path, arguments: tuple[str, ...], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != FAULT_VARIABLE}
    return subprocess.run(
        [sys.executable, str(_ROOT / "hwcompat"), *arguments],
        cwd=folder,
        env={**kept, **more},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _page(folder: Path) -> Iterator[str]:
    yield _HEAD
    ids: list[str] = []
    seen: set[str] = set()
    commands = []
    for models, fault in _RUNS:
        arguments = (*_RUN, *models)
        done = _run(folder, arguments, {FAULT_VARIABLE: fault} if fault else {})
        known = {path.name.rpartition("-")[0] for path in (folder / "hwcompat-out" / "evidence").glob("*.jsonl")}
        new = sorted(known - seen)
        if not new:
            raise click.ClickException(f"no run came of {_command(arguments, fault)}: {done.stderr[-500:]}")
        ids.append(new[0])  # A run in which checks fail starts another one on the CPU.
        seen |= known
        commands.append(f"{_command(arguments, fault)}\n  # run {ids[-1]}, exit code {done.returncode}")
    yield "```\n" + "\n".join(commands) + "\n```\n"
    for text, words in _SHOWN:
        arguments = (_ASK, *(word.format(*ids) for word in words))
        done = _run(folder, arguments, {"COLUMNS": "110"})
        yield text.format(code=done.returncode) + "\n"
        yield f"````\n$ {_command(arguments)}\n\n{done.stdout}{done.stderr}````\n"


@click.command()
def main() -> None:
    """Print the page."""
    with tempfile.TemporaryDirectory() as folder:
        click.echo("\n".join(_page(Path(folder))).rstrip())


if __name__ == "__main__":
    main()
