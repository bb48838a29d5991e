"""How a lab machine is named on the command line, and the words that start what answers there.

A host is data: it is never code, nor an option of ssh.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass

from hardware.errors import UsageError, echo

SSH_VARIABLE = "HWCOMPAT_SSH"
"""What stands for `ssh`, with options, as a shell takes it: `ssh -F other_config`."""

DEFAULT_FOLDER = ".cache/hwcompat/lab"

_HOST = re.compile(r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._+-]{0,63})@)?(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]{0,252})")
_OPTIONS = (
    *("BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3"),
    *("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes", "RequestTTY=no", "LogLevel=ERROR"),
)
"""Nobody is asked for passwords in the middle of a run, a line that is dead ends within half a minute, and the lab
gets neither keys nor ports of this machine. All else is as the user's configuration says."""

_BOOT = "import sys; del sys.path[0]; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
"""The folder that ssh begins in is no place to import from."""


@dataclass(frozen=True, kw_only=True)
class LabHost:
    """A machine that ssh reaches by `name`, the `folder` that is ours there (below the home folder unless it begins
    with a slash), and the `python` that runs suites there."""

    name: str
    folder: str = DEFAULT_FOLDER
    python: str = "python3"

    @classmethod
    def parse(cls, text: str, python: str = "python3") -> LabHost:
        """The host that `[user@]name[:folder]` means. Raises `UsageError` for what could be anything else."""
        name, _, folder = text.partition(":")
        folder = folder.removeprefix("~/").rstrip("/")
        if not _HOST.fullmatch(name):
            raise UsageError(
                f"{echo(text)} is no host",
                why="letters, digits, '.', '_' and '-' make its name, and it begins with a letter or a digit",
                fix="For example: --host user@lab or --host lab:/data/hwcompat. Ports, keys and jumps belong into "
                "the configuration of ssh, under a name of their own.",
            )
        if not _is_path(folder or DEFAULT_FOLDER) or ".." in folder.split("/"):
            raise UsageError(f"{echo(folder)} is no folder to work in", fix="For example: --host lab:/data/hwcompat")
        python = python.removeprefix("~/")  # ssh begins in the home folder
        if not _is_path(python):
            raise UsageError(f"{echo(python)} is no Python", fix="For example: --host-python miniconda3/bin/python")
        return cls(name=name, folder=folder or DEFAULT_FOLDER, python=python)

    def command(self, length: int, token: str) -> list[str]:
        """The words that run, on that machine, a Python program of `length` bytes that is sent first. Raises
        `UsageError` where there is no ssh here."""
        try:
            own = shlex.split(os.environ.get(SSH_VARIABLE) or "ssh")
        except ValueError as error:
            raise UsageError(f"{SSH_VARIABLE} can't be taken apart", why=str(error)) from error
        if not own or shutil.which(own[0]) is None:
            raise UsageError(
                f"{echo(own[0] if own else '')} isn't installed here",
                why="a lab machine is reached by OpenSSH's client",
                fix=f"Install it (Debian, Ubuntu: openssh-client), or say in {SSH_VARIABLE} where it is.",
            )
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return [*own, *options, "--", self.name, shlex.join([self.python, "-c", _BOOT, str(length), token])]


def _is_path(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("-") and len(text) <= 1000
