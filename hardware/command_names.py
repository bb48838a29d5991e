"""The commands that start this product or install its dependencies, in a checkout or an installed package.

Texts of the product name the commands of a checkout; `as_runnable` replaces them with those that work here.
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

SCRIPTS = {
    "run_test_generation": "hwcompat",
    "hardware_compatibility_reporter": "hwcompat-report",
    "hardware": "hwcompat-hardware",
}
"""The console script of each command-line module, as declared in `pyproject.toml`."""

_ROOT = Path(__file__).parents[1]
_DOORS = re.compile(
    r"(?:python )?\b(run_test_generation|hardware_compatibility_reporter)\.py\b|python -m (hardware)\b(?!\.)"
)
_REQUIREMENTS = re.compile(r"(?<=install )-r requirements(?:-(\w+))?\.txt")
_SETUP = re.compile(r"make setup-(\w+)")

_WEB = "make setup-web in a checkout, and HWCOMPAT_WEB_PYTHON=<checkout>/.venv-web/bin/python here"
"""The browser environment needs npm packages, which pip can't install."""


@functools.cache
def is_installed() -> bool:
    """Return whether this is an installed package rather than a checkout of the repository."""
    return (_ROOT / "run_test_generation.py").is_file() and not (
        (_ROOT / "pyproject.toml").is_file() and (_ROOT / "constraints.txt").is_file()
    )


def interpreter() -> str:
    """Return the running Python as a shell command: `python` if the shell finds this one, else its path."""
    own, found = Path(sys.executable), shutil.which("python")
    if found and Path(found).absolute().parent == own.parent:
        return "python"
    return _shown(own)


def command_of(door: str) -> str:
    """Return the shell command for a command-line module: its script if the product is installed or was started by
    a script, else its file or module."""
    script = _script(SCRIPTS[door])
    if script and (is_installed() or _script_that_runs()):
        return script
    if is_installed() or door == "hardware":
        return f"{interpreter()} -m {door}"
    started = Path(sys.argv[0]).name == f"{door}.py"
    return f"{interpreter()} {shlex.quote(sys.argv[0]) if started else _shown(_ROOT / f'{door}.py')}"


def program_of(door: str) -> str:
    """Return the program name of a command-line module in usage texts."""
    if _script_that_runs() == SCRIPTS[door]:
        return SCRIPTS[door]
    return f"python -m {door}" if is_installed() or door == "hardware" else f"{door}.py"


def own_command(door: str, arguments: Sequence[str]) -> str:
    """Return the command that started this process, for reports and evidence; without any path of this machine."""
    started = program_of(door)
    return f"{started if not started.endswith('.py') else f'python {started}'} {shlex.join(arguments)}".rstrip()


def as_runnable(text: str) -> str:
    """Return `text` with the commands of a checkout replaced by those that work here."""
    if not (is_installed() or _script_that_runs()):
        return text
    text = _DOORS.sub(lambda found: command_of(found[1] or found[2]), text)
    if not is_installed():
        return text
    text = _REQUIREMENTS.sub(lambda found: _extra(found[1] or ""), text)
    return _SETUP.sub(lambda found: _WEB if found[1] == "web" else f"pip install {_extra(found[1])}", text)


def _extra(name: str) -> str:
    """Return the extra that replaces a requirements file. `openvino` pins torch, so an installed torch is kept."""
    if not name:
        name = "openvino-only" if importlib.util.find_spec("torch") else "openvino"
    return f"'hwcompat[{'tpu' if name == 'xla' else name}]'"


def _script_that_runs() -> str:
    """Return the console script that started this process, or an empty text."""
    name = Path(sys.argv[0]).name.removesuffix(".exe") if sys.argv else ""
    return name if name in SCRIPTS.values() else ""


@functools.cache
def _script(name: str) -> str:
    """Return a console script of this environment as a shell command, or an empty text if it doesn't exist."""
    path = shutil.which(name, path=str(Path(sys.argv[0]).parent if _script_that_runs() else _scripts_folder()))
    if path is None:
        return ""
    found = shutil.which(name)
    return name if found and Path(found).absolute() == Path(path).absolute() else _shown(Path(path))


def _scripts_folder() -> Path:
    return Path(sysconfig.get_path("scripts"))


def _shown(path: Path) -> str:
    """Return the path of a program for a shell, without the name of a home folder."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            inside = path.relative_to(base)
            return (prefix or ("./" if len(inside.parts) == 1 else "")) + shlex.quote(str(inside))
    return shlex.quote(str(path))
