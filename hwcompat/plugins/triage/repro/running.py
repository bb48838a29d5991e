"""Runs a script in a child that can't find our packages, and reads how it ended."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hardware.process import run

SCRIPT = "repro.py"
_LONGEST_READ = 200_000
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.DOTALL)
_OFF = re.compile(r"off by (?P<error>inf|nan|\d\.\d+e[+-]\d+) of its scale")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How a script ended: its exit `code` (None where it was ended after `seconds`), what it `printed`, and the
    `exception` that ended it, with its `message`."""

    code: int | None
    seconds: float
    printed: str
    exception: str = ""
    message: str = ""

    @property
    def error(self) -> float | None:
        """The largest error in the message of a failed comparison; None where it isn't one."""
        found = [float(one) for one in _OFF.findall(self.message)] if self.exception == "AssertionError" else []
        return max(found, key=lambda one: (one != one, one)) if found else None


def run_script(
    folder: Path,
    *,
    python: str = sys.executable,
    seconds: float,
    memory_bytes: int = 0,
    arguments: tuple[str, ...] = (),
) -> Shown:
    """Run the script in `folder` with `python`, isolated: no variable and no folder leads it to a package of ours."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HWCOMPAT"))}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "CI": "true"}
    environment |= {"ORT_DISABLE_TELEMETRY": "1"}
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as work:
        ended = run(
            [python, "-I", str((folder / SCRIPT).resolve()), *arguments],
            limit_s=seconds,
            cwd=work,
            environment=environment,
            memory_bytes=memory_bytes,
        )
    kind, message = last_exception(ended.stderr[-_LONGEST_READ:])
    return Shown(
        code=ended.returncode,
        seconds=ended.seconds,
        printed=ended.stdout[-_LONGEST_READ:],
        exception=kind,
        message=message,
    )


def last_exception(log: str) -> tuple[str, str]:
    """The class, without its module, and the message of the exception that a traceback ends with; else empty."""
    _, found, rest = log.rpartition("Traceback (most recent call last):\n")
    if not found:
        return "", ""
    lines = rest.splitlines()
    start = next((place for place, line in enumerate(lines) if line and not line.startswith(" ")), None)
    raised = _RAISED.match("\n".join(lines[start:])) if start is not None else None
    if raised is None:
        return "", ""
    return raised["kind"].rpartition(".")[2], (raised["message"] or "").strip()
