"""Run the checks of a suite in a child process until one fails, and record the failure. After a crash, a hang or a
lack of memory, the failure is what was written by then."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hwcompat.hardware.errors import HwCompatError
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.process import NoAnswer, answer, ask, limit_memory
from hwcompat.hardware.testing.pytest_environment import AUTOLOAD

from .captured_failure import ANSWER, CapturedFailure, Shape

_SUITE_INI = PRODUCT / "hardware" / "testing" / "suite.ini"
_LAST_LINES = 5


class NothingCaptured(HwCompatError):
    """The check did not fail, or its process ended before it recorded anything."""

    exit_code = 1


def capture(
    suite: str,
    checks: Sequence[str],
    folder: Path,
    *,
    seconds: float,
    memory_bytes: int = 0,
    weights: bool = True,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> CapturedFailure:
    """Run `checks` of the suite with this text one after the other in a child, and write the inputs and the expected
    outputs of the first failing one into `folder`.

    Without `weights` the weights aren't copied. `variables` are those of the child's environment. Raises
    `NothingCaptured` if no check fails here.
    """
    with tempfile.TemporaryDirectory(prefix="hwcompat-") as work:
        file, log = Path(work, "test_suite.py"), Path(work, "log.txt")
        file.write_text(suite, encoding="utf-8")
        question = {
            "suite": str(file),
            "checks": list(checks),
            "folder": str(folder.resolve()),
            "memory_bytes": memory_bytes,
            "weights": weights,
        }
        started = time.monotonic()
        how: dict[str, Any] = {}
        code: int | None
        try:
            code, undecided = ask(
                __name__, question, limit_s=seconds, environment={**os.environ, AUTOLOAD: "1", **variables}, log=log
            )
        except NoAnswer as error:
            code, undecided = error.ended.returncode, ""
            if code is None:
                how = {"shape": Shape.TIMEOUT}
            elif code < 0:
                how = {"shape": Shape.CRASHED, "signal": -code}
        took = time.monotonic() - started
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if code == 0:
        raise NothingCaptured("no check fails here now", why="the suite ran again and passed")
    if undecided:
        raise NothingCaptured("the check has no result here", why=undecided)
    if not (folder / ANSWER).is_file():
        last = " | ".join(said[-_LAST_LINES:]) or "nothing"
        raise NothingCaptured("the check could not be run again", why=f"its process ended with {code}: {last}")
    return replace(CapturedFailure.read(folder), seconds=took, **how)


def _run(*, suite: str, checks: Sequence[str], folder: str, memory_bytes: int, weights: bool) -> tuple[int, str]:
    """Return the exit code of pytest in the child, and what left the last check undecided, if anything did."""
    import pytest

    from .failure_recorder import FailureRecorder
    from .hooks import watch

    limit_memory(memory_bytes)
    recorder = FailureRecorder(folder=Path(folder), with_weights=weights)
    watch(recorder)
    names = [f"{suite}::test_{check}" for check in checks]
    settings = ["-c", str(_SUITE_INI), f"--rootdir={Path(suite).parent}", "--noconftest", "-x"]
    code = int(pytest.main([*names, *settings, "--capture=sys", "--tb=line"], plugins=[recorder]))
    return code, recorder.undecided


if __name__ == "__main__":
    answer(lambda question: _run(**question))
