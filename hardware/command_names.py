"""The commands that start this product or install its dependencies, in a checkout or an installed package.

Texts of the product name the program `hwcompat`; `as_runnable` replaces it with what starts it here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "hwcompat"
ARGUMENTS = "hwcompat.arguments"
"""The key of a command line's words in the `meta` of its click context."""

COMMAND_NAMES = (
    *("run", "generate", "check", "update", "verify", "bundle", "web-page", "ops", "enable", "matrix", "coverage"),
    *("explain", "calibration", "backlog", "classify", "report", "compare", "diagnose", "compare-devices"),
    *("localize", "repro", "fix"),
    *("upstream", "fit", "devices", "doctor", "place", "mesh", "evidence", "init", "completion", "mcp"),
)
"""The names of all commands of the program, in the order of its help."""

_ROOT = Path(__file__).resolve().parents[1]
_COMMAND = re.compile(rf"(?<![\w./-])(?<!-m ){PROGRAM} (?=(?:{'|'.join(COMMAND_NAMES)})\b|--)")
_REQUIREMENTS = "install -r requirements.txt"
_EXTRA = re.compile(rf"(?<=install )'{PROGRAM}(?=\[)")
_SETUP = re.compile(r"make setup-([\w-]+)")

_WEB = "make setup-web in a checkout, and HWCOMPAT_WEB_PYTHON=<checkout>/.venv-web/bin/python here"
"""The browser environment needs npm packages, which pip can't install."""


@functools.cache
def is_installed() -> bool:
    """Return whether this is an installed package rather than a checkout of the repository, or a bundle of it."""
    return _has_program() and not ((_ROOT / "pyproject.toml").is_file() and (_ROOT / "constraints.txt").is_file())


def _has_program() -> bool:
    places = (_ROOT / "cli", _ROOT / PROGRAM / "cli")  # installed, and in a checkout; a bundle has neither
    return any(place.is_dir() for place in places)


def interpreter() -> str:
    """Return the running Python as a shell command: `python` if the shell finds this one, else its path."""
    own, found = Path(sys.executable), shutil.which("python")
    if found and Path(found).absolute().parent == own.parent:
        return "python"
    return _shown(own)


def program_command() -> str:
    """Return the shell command that starts the program here: its script, else the package, by name or by path."""
    if script := PROGRAM if not _has_program() else _script():
        return script
    if is_installed() or Path.cwd() == _ROOT:
        return f"{interpreter()} -m {PROGRAM}"
    return f"{interpreter()} {_shown(_ROOT / PROGRAM)}"


def command_of(*words: str) -> str:
    """Return the shell command for a line of the program, such as `hwcompat run --model bert`."""
    return f"{program_command()} {shlex.join(words)}"


def own_arguments() -> Sequence[str]:
    """Return the words of the command line that runs, without the program's name."""
    import click  # not on a machine that runs a bundle

    context = click.get_current_context(silent=True)
    words: Sequence[str] = context.meta.get(ARGUMENTS, ()) if context is not None else ()
    return words


def own_command() -> str:
    """Return the command that runs, for reports and evidence; without any path of this machine's program."""
    return shlex.join([PROGRAM, *own_arguments()])


def as_runnable(text: str) -> str:
    """Return `text` with the program's commands, and those that install something, as they work here."""
    if _COMMAND.search(text):
        command = f"{program_command()} "
        text = _COMMAND.sub(lambda _: command, text)
    if not is_installed():
        return _EXTRA.sub("-e '.", text) if _has_program() else text
    if _REQUIREMENTS in text:  # `openvino` pins torch, so an installed torch is kept
        extra = "openvino-only" if importlib.util.find_spec("torch") else "openvino"
        text = text.replace(_REQUIREMENTS, f"install '{PROGRAM}[{extra}]'")
    return _SETUP.sub(lambda found: _WEB if found[1] == "web" else _install(found[1]), text)


def _install(environment: str) -> str:
    """Return the command that installs what `make setup-NAME` does in a checkout."""
    return f"pip install '{PROGRAM}[{'tpu' if environment == 'xla' else environment}]'"


@functools.cache
def _script() -> str:
    """Return the running console script, else that of this environment, as a shell command; an empty text if there is
    none."""
    started = Path(sys.argv[0])
    own = started.stem == PROGRAM and started.is_file()
    path = str(started.absolute()) if own else shutil.which(PROGRAM, path=sysconfig.get_path("scripts"))
    if path is None:
        return ""
    found = shutil.which(PROGRAM)
    return PROGRAM if found and Path(found).absolute() == Path(path).absolute() else _shown(Path(path))


def _shown(path: Path) -> str:
    """Return the path of a program for a shell, without the name of a home folder."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            inside = path.relative_to(base)
            return (prefix or ("./" if len(inside.parts) == 1 else "")) + shlex.quote(str(inside))
    return shlex.quote(str(path))
