"""Print docs/measured/comparison.md: how runs are compared, with three runs made for the page.

`python -m benchmarks.comparison > docs/measured/comparison.md`. bert and gpt2 run on the simulated device, then with
a wrong matrix product, then bert runs alone without the fault. Takes two minutes.
"""

from __future__ import annotations

import os
import re
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

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


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


def _runs(folder: Path) -> Iterator[str]:
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
        text = "\n".join(_runs(Path(folder))).rstrip()
    found = re.findall(r"(\d+) cells?, the only difference in (\d+)", text)
    cells, named = (sum(map(int, column)) for column in zip(*found, strict=True))
    result = f"`hwcompat compare` names the planted fault as the only cause of {named} of {cells} failures."
    click.echo(f"{_HEAD.replace('{result}', result)}\n{text}")


if __name__ == "__main__":
    main()
