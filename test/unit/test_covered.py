"""What the tests reach: a file of which too little is reached has a reason or is named, and no reason outlives it."""

from __future__ import annotations

import json

from benchmarks.covered import KEPT, ROOT, File, Reason, by_reason, files_of, page, ranges, read_reasons, unused

GPU = Reason(files=("hardware/cuda*",), why="no GPU is here")


def file(path: str, covered: int) -> File:
    return File(path=path, statements=10, covered=covered, branches=0, branches_covered=0, missing=(1,))


def test_too_little_has_a_reason_or_is_named():
    files = [file("hardware/cuda.py", 2), file("hardware/a.py", 7), file("hardware/b.py", 8)]
    explained, bare = by_reason(files, [GPU])
    assert [one.path for one in explained[GPU.why]] == ["hardware/cuda.py"]
    assert [one.path for one in bare] == ["hardware/a.py"]
    assert unused([GPU], files) == []
    assert unused([GPU], files[1:]) == ["hardware/cuda*"]


def test_a_report_is_told_with_its_shares_and_what_is_missing():
    found = {"num_statements": 10, "covered_lines": 5, "num_branches": 4, "covered_branches": 4}
    report = {"files": {"hardware/a.py": {"summary": found, "missing_lines": [1, 2, 3, 7]}}}
    kept = {
        "date": "2026-01-01",
        "coverage": "7",
        "tests": "3 passed",
        "files": [vars(one) for one in files_of(report)],
    }
    text = page(json.loads(json.dumps(kept)), [GPU])
    assert "| all | 1 | 10 | 50.0 % | 4 | 100.0 % |" in text
    assert "| `hardware/a.py` | 5 | 1-3, 7 |" in text
    assert "Reasons that are gone: hardware/cuda*." in text
    assert ranges(()) == ""


def test_what_is_kept_has_its_reasons():
    """Files that came or were renamed after the measuring stand on the page until it is made again."""
    files = [File(**{**one, "missing": ()}) for one in json.loads(KEPT.read_text(encoding="utf-8"))["files"]]
    assert [one for one in unused(read_reasons(), files) if not list(ROOT.glob(one))] == []
