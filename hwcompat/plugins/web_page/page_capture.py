"""Run a suite in a child process with `CapturedTest` instead of `ModelTest`, and return its checks' computations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import ModelError
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import NoAnswer, answer, ask
from hwcompat.hardware.testing.pytest_environment import shield_pytest

_SUITE_INI = PRODUCT / "hardware" / "testing" / "suite.ini"
INPUTS, EXPECTED = "inputs.bin", "expected.bin"
LIMIT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class CapturedSuite:
    """The computations of a suite's checks on a target, as plain data, and the bytes of files and arrays.

    `files` are the models as ONNX. `asked` holds `steps` by check, `passes`, `wanted`, `facts`, `conditions`, and
    `not_captured`: why a page can't run a check, by check. Arrays in it are offsets in `inputs` and `expected`.
    """

    files: tuple[bytes, ...]
    inputs: bytes
    expected: bytes
    asked: Mapping[str, Any]


def capture(suite: Path, given: Mapping[str, str]) -> CapturedSuite:
    """Run the suite in a child that works in its folder, with `given` in its environment.

    Raises `ModelError` if its model can't be built or exported here, or if a check fails before it uses a target.
    """
    folder = suite.parent
    environment = {**os.environ, **given}
    shield_pytest(environment)
    try:
        asked = ask(__name__, str(suite), limit_s=LIMIT_S, environment=environment)
    except NoAnswer as error:
        raise ModelError("the suite couldn't be captured", why=str(error)) from error
    for check, why in asked["failed"].items():
        raise ModelError(
            f"no page can be made: {check} fails before it uses the target", why=one_line(why, longest=500)
        )
    return CapturedSuite(
        files=tuple((folder / f"{number}.onnx").read_bytes() for number in range(asked["files"])),
        inputs=(folder / INPUTS).read_bytes(),
        expected=(folder / EXPECTED).read_bytes(),
        asked=asked,
    )


class _Plugin:
    """Records which check runs, and why one could not be captured or failed."""

    def __init__(self) -> None:
        self.not_captured: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_setup(self, item: Any) -> None:
        from .captured_test import captured

        captured.check = item.name.removeprefix("test_")

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        from .captured_test import NotCaptured, captured

        if call.excinfo is None:
            return
        error = call.excinfo.value
        check = item.name.removeprefix("test_")
        captured.steps.pop(check, None)
        found = self.not_captured if isinstance(error, NotCaptured) else self.failed
        found[check] = str(error) if isinstance(error, NotCaptured) else f"{type(error).__name__}: {error}"


def _in_child(name: str) -> dict[str, Any]:
    import pytest

    from hwcompat.hardware import testing

    from .captured_test import CapturedFile, CapturedTest, captured

    suite = Path(name)
    folder = suite.parent
    testing.ModelTest, testing.GraphTest = CapturedTest, CapturedFile  # type: ignore[misc]
    plugin = _Plugin()
    settings = ["-c", str(_SUITE_INI), f"--rootdir={folder}", "--noconftest", "--capture=sys", "--tb=line"]
    code = int(pytest.main([str(suite), *settings], plugins=[plugin]))
    if code not in (0, 1):
        raise ModelError("the suite couldn't be captured", why=f"pytest ended with exit code {code}")
    for number, file in enumerate(captured.files.values()):
        (folder / f"{number}.onnx").write_bytes(file.read_bytes())
    (folder / INPUTS).write_bytes(captured.inputs.data)
    (folder / EXPECTED).write_bytes(captured.expected.data)
    found = {
        "files": len(captured.files),
        "steps": captured.steps,
        "passes": captured.passes,
        "wanted": captured.wanted,
        "facts": captured.facts,
        "conditions": captured.conditions,
        "not_captured": plugin.not_captured,
        "failed": plugin.failed,
    }
    json.dumps(found, allow_nan=False)  # raises for values that JSON doesn't have
    return found


if __name__ == "__main__":
    answer(_in_child)
