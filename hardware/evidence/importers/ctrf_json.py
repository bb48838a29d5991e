"""Test results in CTRF (https://ctrf.io), a JSON format that many test tools write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..published import Importer, Row, files_in, json_of, refused
from ._test_names import row_of_test

_OUTCOMES = {"passed": "pass", "failed": "fail", "skipped": "skip", "pending": "skip", "other": "untested"}


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each test of one report, or of all reports of a folder."""
    for file in files_in(path, "*.json"):
        data = json_of(file)
        if not isinstance(data, dict) or data.get("reportFormat", "CTRF") != "CTRF" or "results" not in data:
            raise refused(file, "it isn't a CTRF report: no results")
        results = data["results"]
        known = {**(data.get("extra") or {}), **((results.get("environment") or {}).get("extra") or {})}
        for test in results["tests"]:
            more = {**known, **(test.get("extra") or {})}
            if test.get("device"):
                more["device"] = test["device"]
            text = test.get("message") or ""
            yield row_of_test(
                f"{results['tool']['name']}:{file.name}", test["name"], _OUTCOMES[test["status"]], text, more
            )


IMPORTER = Importer(about="a CTRF report", rows=rows)
