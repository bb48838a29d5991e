"""What every command line of the product shares: one line for an error, the right exit code, quiet pipes."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from .command_names import as_runnable
from .errors import HwCompatError, did_you_mean, echo
from .plain_text import one_line, printable

INTERRUPTED = 2
INTERNAL = 3
USAGE = 4

_LONGEST_NOTE = 2000


def open_door(command: click.Command, arguments: Sequence[str], *, program: str) -> int:
    """Run a command and return its exit code: what it returns, or that of the error that it raised.

    Errors are one line on standard error; a traceback is shown only with `--debug` or `LOGLEVEL=DEBUG`.
    """
    debug = "--debug" in arguments or os.environ.get("LOGLEVEL", "").upper() == "DEBUG"

    try:
        # Not `command.main`, which makes a broken pipe an exit with code 1.
        with command.make_context(program, list(arguments)) as context:
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
        _say(f"{error.format_message()}{hint}", debug)
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted", False)
        return INTERRUPTED
    except BrokenPipeError:
        return _end_quietly()
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # whichever option named it
            _say(f"{echo(str(error.filename))} is too long for the name of a file", debug)
            return USAGE
        _say(f"internal error: {type(error).__name__}: {error}. Run it again with --debug to see where.", debug)
        return INTERNAL


class PrecisionChoice(click.Choice[str]):
    """A precision by its name; another usual name of one, such as fp16, is refused with ours."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The precision's name. Raises `click.BadParameter`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = did_you_mean(str(value), self.choices)
            raise click.BadParameter(f"{error.message} {hint}".rstrip(), ctx=ctx, param=param) from error


def note(*texts: str) -> None:
    """Say what isn't the product: a line of its own on standard error for each."""
    for text in texts:
        click.echo(f"note: {one_line(as_runnable(text), longest=_LONGEST_NOTE)}", err=True)


def terminal_width() -> int:
    """Columns that output may take: the terminal's, between 60 and 120; 100 where there is none."""
    return max(60, min(120, shutil.get_terminal_size((100, 24)).columns))


def _end_quietly() -> int:
    """Whoever read our output has enough of it. Nothing more may be written at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _say(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(f"error: {printable(' '.join(message.split()))}", err=True)
