"""The command that takes a new device from its backend to a graded report: enable."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import rich_click as click

from hwcompat.hardware.command_line import INTERRUPTED, note
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.errors import BackendUnavailable
from hwcompat.hardware.files import OUTPUT, write_whole, writing
from hwcompat.hardware.plain_text import columns, printable
from hwcompat.hardware.process import Ended, run

from . import OWN_PROGRAM
from .option_table import FOLDER

_PACKAGE = Path(__file__).parents[1]
_HEADING = re.compile("^#(?= )", re.MULTILINE)
_PYTEST = (sys.executable, "-m", "pytest", "--noconftest")
_DAY = 24 * 60
_UNCOLLECTED = "the contract couldn't be collected"  # 2 of pytest; Ctrl-C on a terminal doesn't reach a step
_ENDINGS: Mapping[int | None, str] = {0: "clean", 1: "findings", 2: _UNCOLLECTED, 5: "nothing to test"}


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command that `enable` runs, and the question that it answers."""

    name: str
    question: str
    words: tuple[str, ...]
    limit_minutes: int = 60
    start: tuple[str, ...] = OWN_PROGRAM
    name_of_start: str = PROGRAM


@click.command("enable", short_help="Test a new device: contract, probe, operators, models, report.")
@click.argument("target")
@click.option("--model", metavar="MODEL", default="", help="Test this model type and its operators alone.")
@click.option(
    "--output-dir",
    "folder",
    type=FOLDER,
    help="Folder for suites, evidence and reports. Default: hwcompat-out/enable/TARGET.",
)
def enable_command(target: str, model: str, folder: Path | None) -> int:
    """Test a device for which a backend was written, from the backend's contract to the models of high priority.

    Each step is a command of its own with a time limit; its output is written to a file, and all of them to
    enable.md after each step. Exit with 1 if a step finds anything.

    \b
    Examples:
      hwcompat enable mychip
      hwcompat enable simulated --model bert
    """
    from hwcompat.generators.models.basic_classification import classify
    from hwcompat.generators.operators.run_operators import target_of, why_unavailable

    if model:
        classify(model)  # refuses an unknown one
    place = target_of(target)
    if why := why_unavailable(place):
        raise BackendUnavailable(f"{place} can't be used", why=why)
    into = folder or OUTPUT / "enable" / str(place).replace(":", "-")
    with writing(f"{into} can't be made", fix="Name another folder: --output-dir DIR"):
        into.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    rows, texts, worst = [], [], 0
    for number, step in enumerate(found := steps(str(place), model, into), 1):
        note(f"[{number}/{len(found)}] {step.name}: {step.question}")
        said = into / f"{step.name}.md"
        with writing(f"{said} can't be written"), said.open("wb") as file:
            done, last_line = _run_step(step, file, environment)
        if done.returncode == INTERRUPTED and step.start is OWN_PROGRAM:
            return INTERRUPTED
        text = _HEADING.sub("###", said.read_text(encoding="utf-8", errors="replace").strip())
        late = f"took longer than {step.limit_minutes} minutes" if done.timed_out else ""
        rows.append([step.name, late or _ENDINGS.get(done.returncode, done.how), f"{done.seconds:.0f} s"])
        if last_line and (done.returncode not in (0, 1) or last_line.startswith("error:")):
            text += f"\n\nLast on standard error:\n\n```\n{last_line}\n```"
        texts.append(
            f"## {step.name}: {step.question}\n\n`{shlex.join((step.name_of_start, *step.words))}`\n\n{text}\n"
        )
        worst = max(worst, int(done.returncode != 0))
        table = "\n".join(columns(["step", "result", "time"], rows))
        write_whole(into / "enable.md", "\n".join([f"# {place}\n", f"```\n{table}\n```\n", *texts]))
    click.echo(f"{table}\n\nreport {into / 'enable.md'}")
    return worst


def _run_step(step: Step, file: IO[bytes], environment: Mapping[str, str]) -> tuple[Ended, str]:
    """Run a step with its output in `file`; show its standard error as it comes, and return its last line too."""
    reader, writer = os.pipe()
    last = ""

    def show() -> None:
        nonlocal last
        with open(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                click.echo(line, err=True, nl=False)
                last = printable(line.strip()) or last

    shown = threading.Thread(target=show, daemon=True)
    shown.start()
    with open(writer, "wb") as stderr:
        command, limit_s = (*step.start, *step.words), step.limit_minutes * 60
        done = run(command, limit_s=limit_s, stdout=file, stderr=stderr, environment=environment)
    shown.join(timeout=2)  # a process that outlives the step may hold the pipe forever
    return done, last


def steps(target: str, model: str, folder: Path) -> list[Step]:
    """Return the commands for a target, in their order; for one model type alone if it isn't empty."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "hwcompat.hardware.testing.contract.contract_options")
    contract = ("--pyargs", "hwcompat.generators.contract", *options, "--backend", target)
    operators = ("--operators-of", model) if model else ("--breadth",)
    models = ("--model", model) if model else ("--priority", "high")
    places = ("--output-dir", "suites"), ("--evidence", "evidence"), ("--report-dir", "reports")
    into = tuple(word for option, name in places for word in (option, str(folder / name)))
    return [
        Step(
            name="contract",
            question="does the backend keep its contract?",
            words=contract,
            start=_PYTEST,
            name_of_start="pytest",
        ),
        Step(
            name="probe", question="how does it compute?", words=("devices", "probe", target, "--format", "markdown")
        ),
        Step(
            name="operators",
            question="which operators does it have?",
            limit_minutes=_DAY,
            words=(
                *("ops", target, *operators, "--coverage", "--format", "markdown"),
                *("--output-dir", str(folder / "operators")),
            ),
        ),
        Step(
            name="models",
            question="which models work?",
            words=("run", *models, "--device", target, *into),
            limit_minutes=2 * _DAY,
        ),
    ]
