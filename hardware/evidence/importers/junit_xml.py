"""Test results as JUnit XML, which pytest writes with `--junitxml`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..published import Importer, Row, files_in, refused, xml_of
from ._test_names import row_of_test

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def rows(path: Path) -> Iterator[Row]:
    """Yield a row for each test case of one report, or of all reports of a folder. An error is a failure."""
    for file in files_in(path, "*.xml"):
        root = xml_of(file)
        if root.tag not in ("testsuites", "testsuite"):
            raise refused(file, f"its root is {root.tag[:40]}, not testsuites")
        for suite in [root, *root.iter("testsuite")][root.tag == "testsuites" :]:
            known = _properties(suite)
            for case in suite.findall("testcase"):
                outcome, text = _result(case)
                more = {**known, **_properties(case)}
                name = case.get("name", "")
                yield row_of_test(f"{suite.get('name') or 'pytest'}:{file.name}", name, outcome, text, more)


def _properties(element: Element) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in element.findall("properties/property")}


def _result(case: Element) -> tuple[str, str]:
    for tag, outcome in (("failure", "fail"), ("error", "fail"), ("skipped", "skip")):
        if (found := case.find(tag)) is not None:
            return outcome, found.get("message") or found.text or ""
    return "pass", ""


IMPORTER = Importer(about="a JUnit report", rows=rows)
