"""The program in this process: `invoke` runs a line of it."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from hwcompat.cli.main_program import main, program

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Invoked:
    """The exit code of a line, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its standard output, read as JSON. Fails if that is none."""
        assert self.out, self.err
        return json.loads(self.out)


def commands(group: click.Group = program, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the program with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*before, name), found
        if isinstance(found, click.Group):
            yield from commands(found, *before, name)


def invoke(*words: object) -> Invoked:
    """Run a line of `hwcompat`, such as `invoke("run", "--model", "bert")`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Invoked(code=code, out=out.getvalue(), err=err.getvalue())
