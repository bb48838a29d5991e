"""What stands for ssh in tests: a script that runs the words it is given here, or answers whatever a test says."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from hwcompat.plugins.fleet.lab_line import LabHost

_RUNS_HERE = "import os, sys; os.chdir(os.environ['HOME']); os.execv('/bin/sh', ['sh', '-c', sys.argv[-1]])"


def host_here(monkeypatch: pytest.MonkeyPatch, home: Path) -> LabHost:
    """A host whose words run on this machine, in a home folder of the test's."""
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HWCOMPAT_SSH", shlex.join([sys.executable, "-c", _RUNS_HERE]))
    return LabHost.parse("lab", sys.executable)


def host_that_says(monkeypatch: pytest.MonkeyPatch, script: str) -> LabHost:
    """A host that runs a script of the test's: `token` is the word that it is to begin with, `say` answers, `out` is
    where bytes go."""
    start = (
        "import json, sys\n"
        "token = sys.argv[-1].split()[-1].encode()\n"
        "out = sys.stdout.buffer\n"
        "def say(data): out.write(data); out.flush()\n"
    )
    wait = "\nsys.stdin.buffer.read()\n"
    monkeypatch.setenv("HWCOMPAT_SSH", shlex.join([sys.executable, "-c", start + script + wait]))
    return LabHost.parse("lab")
