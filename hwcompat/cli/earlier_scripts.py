"""The earlier scripts: each line of theirs is a line of `hwcompat`.

`run_test_generation.py --model bert --device auto --run` is `hwcompat run --model bert --device auto`: an option that
asks for a job becomes a command, with the option's value as its argument, and every other option stays as it is.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import click

from hwcompat.hardware.command_line import USAGE, run_command_line
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.errors import UsageError

from .main_program import program


@dataclass(frozen=True, kw_only=True)
class Job:
    """The command that an option of a script asks for.

    `value` says what follows the option: nothing (`no`), an argument of the command (`one`), or one if there is one
    (`optional`). A job that is `first` may stand beside another, which is done after it.
    """

    command: str
    value: str = "no"
    first: bool = False


GENERATION: Mapping[str, Job] = MappingProxyType(
    {
        "--list-devices": Job(command="devices list"),
        "--hardware-compatibility": Job(command="matrix"),
        "--coverage-report": Job(command="coverage"),
        "--calibration": Job(command="calibration"),
        "--backlog": Job(command="backlog", value="one"),
        "--place": Job(command="place"),
        "--mesh": Job(command="mesh", value="one"),
        "--refresh": Job(command="evidence refresh"),
        "--upstream": Job(command="upstream", value="one"),
        "--check": Job(command="check", value="one"),
        "--update": Job(command="update", value="one"),
        "--verify": Job(command="verify", value="optional"),
        "--bundle": Job(command="bundle", value="one"),
        "--web-page": Job(command="web-page", value="one"),
        "--explain": Job(command="explain", value="optional"),
        "--run": Job(command="run"),
    }
)
"""The jobs of `run_test_generation.py`; without one it generates suites."""

REPORTER: Mapping[str, Job] = MappingProxyType(
    {
        "--merge": Job(command="evidence merge", value="one", first=True),
        "--compact": Job(command="evidence compact", first=True),
        "--publish": Job(command="evidence publish", value="one", first=True),
        "--stress": Job(command="devices show-stress", value="one"),
        "--compare": Job(command="compare", value="optional"),
        "--diagnose": Job(command="diagnose", value="one"),
        "--localize": Job(command="localize", value="one"),
        "--repro": Job(command="repro", value="one"),
        "--try-remedies": Job(command="fix", value="one"),
    }
)
"""The jobs of `hardware_compatibility_reporter.py`; without one it reports."""

_REPORTED = frozenset({"--collect-all", "--matrix", "--test-hardware", "--check-model", "--model"})
"""Options with which a report follows the jobs that are done first."""

_UNUSED = frozenset(
    {"--output-dir", "--evidence", "--report-dir", "--template-dir", "--timeout", "--jobs", "--machine"}
)
"""Options with a value that the scripts accepted for every job, and that a command without them ignores."""


def commands_of(words: Sequence[str], jobs: Mapping[str, Job], default: str) -> list[list[str]]:
    """Return the lines of `hwcompat` that do what a line of a script asks for, in their order.

    Raises `UsageError` for two jobs that don't stand beside each other.
    """
    found: list[tuple[str, Job, list[str]]] = []
    rest: list[str] = []
    position = 0
    while position < len(words):
        word, position = words[position], position + 1
        name, equals, value = word.partition("=")
        job = jobs.get(name)
        if job is None:
            rest.append(word)
            continue
        arguments = [value] if equals else []
        follows = position < len(words) and not words[position].startswith("-")
        if not equals and ((job.value == "one" and position < len(words)) or (job.value == "optional" and follows)):
            arguments, position = [words[position]], position + 1
        found.append((name, job, arguments))
    lines = [
        [*job.command.split(), *arguments, *_only("--evidence", rest)] for _, job, arguments in found if job.first
    ]
    others = _joined([one for one in found if not one[1].first], rest)
    if others:
        lines.append(others)
    elif not lines or _REPORTED & {word.partition("=")[0] for word in rest}:
        lines.append([default, *rest])
    return lines


def _joined(found: Sequence[tuple[str, Job, list[str]]], rest: Sequence[str]) -> list[str]:
    """Return the one line of all jobs that aren't done first; one job may be named several times."""
    if not found:
        return []
    commands = {job.command: name for name, job, _ in found}
    if "run" in commands and len(commands) == 2 and {"explain"} & commands.keys():
        del commands["run"]
    if len(commands) > 1:
        first, second = [*commands.values()][:2]
        raise UsageError(f"{first} and {second} are two jobs", fix="Ask for one of them.")
    command = next(iter(commands))
    if command == "run" and "--list" in rest:
        command = "generate"
    arguments = [word for _, job, words in found if job.command == command for word in words]
    return [*command.split(), *arguments, *rest]


def _without_unused(line: Sequence[str]) -> list[str]:
    """Return a line without the options that its command doesn't have and that the scripts accepted everywhere."""
    command: click.Command = program
    for word in line:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word) or command
    unused = _UNUSED - {name for one in command.params for name in one.opts}
    kept: list[str] = []
    for before, word in itertools.pairwise(["", *line]):
        if before not in unused and word.partition("=")[0] not in unused:
            kept.append(word)
    return kept


def _only(option: str, words: Sequence[str]) -> list[str]:
    """Return an option with its value from a line."""
    for place, word in enumerate(words):
        if word == option:
            return list(words[place : place + 2])
        if word.startswith(f"{option}="):
            return [word]
    return []


def _run(words: Sequence[str], jobs: Mapping[str, Job], default: str) -> int:
    own, after = list(words), list[str]()
    if "--" in own:
        own, after = own[: own.index("--")], own[own.index("--") :]
    if {"--help", "-h"} & {*own}:
        return run_command_line(program, ["--help"], program=PROGRAM)
    if "--version" in own:
        return run_command_line(program, ["--version"], program=PROGRAM)
    try:
        lines = commands_of(own, jobs, default)
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    for line in lines:
        code = run_command_line(
            program, [*_without_unused(line), *(after if line[0] in ("run", "upstream") else [])], program=PROGRAM
        )
        if code:
            return code
    return 0


def generation_main(arguments: Sequence[str] | None = None) -> int:
    """Run a line of `run_test_generation.py` and return its exit code."""
    return _run(sys.argv[1:] if arguments is None else arguments, GENERATION, "generate")


def reporter_main(arguments: Sequence[str] | None = None) -> int:
    """Run a line of `hardware_compatibility_reporter.py` and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words:
        return _run(words, REPORTER, "report")
    click.echo("error: nothing was asked for. Report on everything: hwcompat report", err=True)
    return USAGE


def hardware_main(arguments: Sequence[str] | None = None) -> int:
    """Run a line of `python -m hardware` and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    line = words if words[:1] == ["evidence"] else ["devices", *words]
    return run_command_line(program, line, program=PROGRAM)
