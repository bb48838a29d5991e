"""Tenstorrent: the state of each model's test, `tests/runner/test_config/**.yaml` of tt-xla.

Layout: `tests/runner/test_config/test_config_schema.json` there. An architecture's override replaces the entry's
values. A test that doesn't assert its correlation ran, and its numbers are unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..published import Importer, Row, below, files_in, yaml_of

_ARCHITECTURES = ("n150", "p150")
"""The devices of single-device tests that name none."""

_STATES = {
    "EXPECTED_PASSING": "pass",
    "KNOWN_FAILURE_XFAIL": "fail",
    "NOT_SUPPORTED_SKIP": "skip",
    "EXCLUDE_MODEL": "excluded",
    "UNSPECIFIED": "untested",
}


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each test and architecture of one file, or of all files of a folder."""
    for file in files_in(path, "test_config_*.yaml"):
        for name, entry in (yaml_of(file).get("test_config") or {}).items():
            overrides = entry.get("arch_overrides") or {}
            for device in dict.fromkeys([*(entry.get("supported_archs") or _ARCHITECTURES), *overrides]):
                one = {**entry, **overrides.get(device, {})}
                why = (str(one.get(key) or "") for key in ("bringup_status", "reason"))
                yield Row(
                    source=f"tenstorrent/tt-xla:{below(file, 'tests')}",
                    model=name,
                    target="tt",
                    device=device,
                    route=f"tt-xla-{file.parent.name}",
                    precision="bf16",
                    mode=file.stem.removeprefix("test_config_"),
                    outcome=_outcome(one),
                    detail=" ".join(filter(None, why)),
                )


def _outcome(one: Mapping[str, Any]) -> str:
    outcome = _STATES[str(one.get("status", "UNSPECIFIED")).upper()]
    if outcome == "pass" and one.get("assert_pcc") is False:
        return "ran_numbers_not_checked"
    wrong = str(one.get("bringup_status", "")).upper() == "INCORRECT_RESULT"
    return "wrong_numbers" if outcome == "fail" and wrong else outcome


IMPORTER = Importer(about="a test configuration of tt-xla", rows=rows, license="Apache-2.0")
