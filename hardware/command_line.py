"""Shared behavior of all command lines: one line for an error, exit codes, and quiet pipes."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import click

from .command_names import ARGUMENTS, as_runnable
from .errors import HwCompatError, did_you_mean, echo
from .plain_text import one_line, printable

INTERRUPTED = 2
INTERNAL = 3
USAGE = 4

_LONGEST_NOTE = 2000


def run_command_line(command: click.Command, arguments: Sequence[str], *, program: str) -> int:
    """Run a command and return its exit code: its return value, or that of the error that it raised.

    Errors are one line on standard error; a traceback is shown only with `--debug` or `LOGLEVEL=DEBUG`.
    """
    be_quiet(False)
    debug = "--debug" in arguments or os.environ.get("LOGLEVEL", "").upper() == "DEBUG"

    try:
        # `command.main` isn't used because it exits with code 1 on a broken pipe.
        with command.make_context(program, list(arguments)) as context:
            context.meta[ARGUMENTS] = tuple(arguments)
            code: object = command.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except HwCompatError as error:
        _say(as_runnable(str(error)), debug)
        return error.exit_code
    except click.exceptions.Exit as error:
        return int(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return USAGE
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        hint = f" Try: {where.command_path} --help" if where is not None else ""
        _say(as_runnable(f"{error.format_message()}{hint}"), debug)
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted", False)
        return INTERRUPTED
    except BrokenPipeError:
        return _end_quietly()
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # from any option
            _say(f"{echo(str(error.filename))} is too long for the name of a file", debug)
            return USAGE
        _say(f"internal error: {type(error).__name__}: {error}. Run it again with --debug to see where.", debug)
        return INTERNAL


class PrecisionChoice(click.Choice[str]):
    """A precision by its name; other common names, such as fp16, are refused with a suggestion."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of the precision. Raises `click.BadParameter` for an unknown one."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = did_you_mean(str(value), self.choices)
            raise click.BadParameter(f"{error.message} {hint}".rstrip(), ctx=ctx, param=param) from error


def listed(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a repeatable option whose values may be lists with commas, each once.

    Raises `click.BadParameter` if the option was given without a word, as by a variable that isn't set: it would ask
    for nothing, and pass.
    """
    words = tuple(dict.fromkeys(word for text in texts for part in text.split(",") if (word := part.strip())))
    if texts and not words:
        raise click.BadParameter("it is given and empty")
    return words


_QUIET = ContextVar("quiet", default=False)


def be_quiet(quiet: bool) -> None:
    """Leave out notes and progress from now on, or show them again. Errors are always shown."""
    _QUIET.set(quiet)


def is_quiet() -> bool:
    """Return whether notes and progress are left out."""
    return _QUIET.get()


def note(*texts: str) -> None:
    """Print each text as one line on standard error, unless the user asked for quiet."""
    for text in () if is_quiet() else texts:
        click.echo(f"note: {one_line(as_runnable(text), longest=_LONGEST_NOTE)}", err=True)


def terminal_width(most: int = 120) -> int:
    """Return the width of the output in columns: that of the terminal, from 60 to `most`, or 100 without a terminal.

    Tables may use all of a wide terminal; text doesn't get longer than people read."""
    return max(60, min(most, shutil.get_terminal_size((100, 24)).columns))


def _end_quietly() -> int:
    """Return exit code 0 after a broken pipe, and write nothing more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _say(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"error: {printable(' '.join(message.split()))}", err=True)
