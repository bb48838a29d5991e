"""Runs the checks of a suite in a child until one fails, with a recorder beside them. A crash, a hang or a lack of
memory costs the child, and what it had written down by then is what is known."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.errors import HwCompatError
from hardware.process import MERGED, ROOT, Ended, limit_memory, run, with_product

from .failure import ANSWER, Captured, Shape

if TYPE_CHECKING:
    from .recorder import Recorder

_SUITE_INI = ROOT / "hardware" / "testing" / "suite.ini"
_LAST_LINES = 5


class NothingCaptured(HwCompatError):
    """The check did not fail, or its process ended before it said anything."""

    exit_code = 1


def capture(
    suite: str, checks: Sequence[str], folder: Path, *, seconds: float, memory_bytes: int = 0, weights: bool = True
) -> Captured:
    """Run `checks` of the suite with this text one after the other in a child, and write what the first failing one
    was given and what it should have given into `folder`.

    Without `weights` they aren't copied. Raises `NothingCaptured` where none fails here.
    """
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as work:
        (Path(work) / "test_suite.py").write_text(suite, encoding="utf-8")
        question = {
            "suite": str(Path(work) / "test_suite.py"),
            "checks": list(checks),
            "folder": str(folder.resolve()),
            "memory": memory_bytes,
            "weights": weights,
        }
        ended = run(
            [sys.executable, "-P", "-m", __name__, json.dumps(question)],
            limit_s=seconds,
            environment=with_product({**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
            stderr=MERGED,
        )
    return _answer(folder, ended)


def _answer(folder: Path, ended: Ended) -> Captured:
    file, code, took = folder / ANSWER, ended.returncode, ended.seconds
    if not file.is_file():
        if code == 0:
            raise NothingCaptured("no check fails here now", why="the suite was run again, and it passes")
        last = " | ".join(ended.stdout.strip().splitlines()[-_LAST_LINES:]) or "nothing"
        raise NothingCaptured("the check could not be run again", why=f"its process ended with {code}, saying {last}")
    found = Captured.from_dict(json.loads(file.read_text(encoding="utf-8")))
    if code is None:
        return replace(found, shape=Shape.TIMEOUT, seconds=took)
    if code < 0:
        return replace(found, shape=Shape.CRASHED, signal=-code, seconds=took)
    if code == 0:
        raise NothingCaptured("no check fails here now", why="the suite was run again, and it passes")
    if code == _SKIPPED:
        raise NothingCaptured(found.refused, why=found.message)
    return replace(found, seconds=took)


_SKIPPED = 7
"""The exit code of a child in which a check was undecided, or the target wasn't there."""


class _Plugin:
    """Tells the recorder which check runs, and what became of it."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.undecided = ""

    def pytest_runtest_setup(self, item: Any) -> None:
        self.recorder.began(item.name.removeprefix("test_"))

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        from hardware.errors import BackendUnavailable
        from hardware.testing.measurement import Ambiguous, NotApplicable

        if call.excinfo is None:
            return
        error = call.excinfo.value
        if isinstance(error, BackendUnavailable | Ambiguous | NotApplicable):
            self.undecided = f"{type(error).__name__}: {error}"
        else:
            self.undecided = ""
            self.recorder.ended(error)


def _in_child(question: dict[str, Any]) -> int:
    import pytest

    from .recorder import Recorder
    from .watching import watch

    limit_memory(question["memory"])
    recorder = Recorder(folder=Path(question["folder"]), with_weights=question["weights"])
    watch(recorder)
    plugin = _Plugin(recorder)
    names = [f"{question['suite']}::test_{check}" for check in question["checks"]]
    settings = ["-c", str(_SUITE_INI), f"--rootdir={Path(question['suite']).parent}", "--noconftest", "-x"]
    code = int(pytest.main([*names, *settings, "--capture=sys", "--tb=line"], plugins=[plugin]))
    if plugin.undecided:
        found = Captured(
            check=recorder.check,
            shape=Shape.RAISED,
            refused="the check was not decided here",
            message=plugin.undecided,
        )
        (recorder.folder / ANSWER).write_text(json.dumps(found.to_dict()), encoding="utf-8")
        return _SKIPPED
    return code


if __name__ == "__main__":
    sys.exit(_in_child(json.loads(sys.argv[1])))
