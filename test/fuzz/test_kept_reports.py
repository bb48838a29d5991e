"""Files that the product wrote and reads back, when somebody else wrote them: baselines, matrices, coverage reports,
stress runs, packed and compacted evidence."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import made_stress
import pytest
from coverage_evidence import made_report
from hostile import Hostile
from made_evidence import files, write
from readers import check_html, check_json, check_markdown, check_terminal
from watched import Sentinel, limited, refused_or

from generators.compatibility.matrix import build_matrix
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.errors import BrokenInput
from hardware.evidence import parquet as reading_parquet
from hardware.evidence import shipped_evidence
from hardware.evidence.compacted import compact
from hardware.evidence.latest import read_latest
from hardware.evidence.shipped_evidence import read_shipped
from hardware.evidence.store import read_folder
from hardware.plain_text import json_text
from hwcompat.plugins.stress.stress_page import stress_html
from hwcompat.plugins.stress.stress_report import load_stress, stress_markdown
from reports.baseline import compare, read_baseline
from reports.coverage.coverage_report import CoverageReport, coverage_json, read_report
from reports.coverage.coverage_view import coverage_markdown, coverage_text
from reports.formats import report_text
from reports.html.coverage_html import coverage_html
from reports.matrix_changes import changes_text, compare_matrix
from reports.matrix_changes import read_baseline as read_matrix
from reports.report import Report
from reports.reporter import HardwareCompatibilityReporter

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("evidence")
    write(folder, files())
    reporter = HardwareCompatibilityReporter(read_folder(folder), output_folder=folder)
    reporter.collect_compatibility_test_errors()
    return reporter.report()


def changed(hostile: Hostile, whole: Any) -> bytes:
    """Another file of the same kind: with hostile texts alone, or with values of other kinds."""
    told = hostile.retold(whole, share=0.2) if hostile.random() < 0.5 else hostile.changed(whole)
    return hostile.line(told)


def read_or_refuse(fuzz: Any, path: Path, whole: Any, read: Callable[[Path], Any], show: Callable[..., None]) -> None:
    """Change a file again and again; what can be read of it is shown, and some of it can."""
    shown = 0
    for hostile in fuzz:
        path.write_bytes(changed(hostile, whole))
        found = refused_or(read, path)
        if found is not None:
            shown += 1
            show(found, hostile)
    assert shown


@pytest.mark.fuzz(100)
def test_a_baseline_is_read_and_shown_or_refused(fuzz: Any, place: Path, sentinel: Sentinel, report: Report) -> None:
    def show(baseline: Any, hostile: Hostile) -> None:
        form, check = hostile.choice((("markdown", check_markdown), ("html", check_html), ("json", check_json)))
        check(report_text(dataclasses.replace(report, baseline=compare(report, baseline)), form))

    whole = json.loads(report_text(report, "json"))
    read_or_refuse(fuzz, place / "report.json", whole, read_baseline, show)


@pytest.mark.fuzz(100)
def test_an_earlier_matrix_is_read_and_compared_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    reasons = (Reason.of("check", check="builds", outcome="failed", message="a"), Reason.of("text", text="b"))
    how = {"level": Level.HIGH, "basis": Basis.MEASURED, "reasons": reasons, "evidence_ids": ("b",)}
    cells = [f"{model}/fill-mask/{target}/float32" for model in ("bert", "mine") for target in ("cpu", "cuda")]
    verdicts = [Verdict(cell=cell, **how) for cell in cells]
    matrix = build_matrix(load_rules(), verdicts, {"bert": "embedding"}, timestamp="2026-01-01T00:00:00+00:00")
    whole = json.loads(json_text(matrix.to_dict()))
    path = place / "matrix.json"
    read = []

    for hostile in fuzz:
        told = json.loads(json.dumps(whole))
        if hostile.random() < 0.5:  # a cell of another name, told in another way
            row = told["models"].popitem()[1]
            row["compatibility"] = {
                name: {**one, "cell": hostile.text()} for name, one in row["compatibility"].items()
            }
            told["models"][hostile.text()] = row
            path.write_bytes(hostile.line(told))
        else:
            path.write_bytes(changed(hostile, whole))
        before = refused_or(read_matrix, path)
        if before is None:
            continue
        read.append(before)
        found = compare_matrix(before, matrix)
        check_terminal(changes_text(found, "table", width=hostile.randrange(30, 120)))
        check_markdown(changes_text(found, "markdown"))
        check_json(changes_text(found, "json"))
    assert read


@pytest.mark.fuzz(150)
def test_a_stress_run_is_read_and_shown_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    def show(run: Any, _: Hostile | None = None) -> None:
        check_html(stress_html(run))
        check_markdown(stress_markdown(run))
        check_json(json_text(run, ascii_alone=True))

    whole = made_stress.report(made_stress.summary())
    show(whole)
    read_or_refuse(fuzz, place / "stress.json", whole, load_stress, show)


@pytest.mark.fuzz(240)
def test_an_earlier_coverage_report_is_read_and_shown_or_refused(
    fuzz: Any, place: Path, sentinel: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(found: CoverageReport, _: Hostile) -> None:
        check_terminal(coverage_text(found))
        check_html(coverage_html(found))
        check_markdown(coverage_markdown(found))

    whole = json.loads(coverage_json(made_report(monkeypatch)))
    read_or_refuse(fuzz, place / "coverage.json", whole, read_report, show)


@pytest.mark.fuzz(80)
def test_packed_evidence_is_unpacked_as_far_as_it_may_be(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    path = place / "cpu.jsonl.gz"
    lines = [json.dumps(line).encode() for _, found in files() for line in found]
    read = []

    for hostile in fuzz:
        data = b"".join(
            (hostile.json(json.loads(line)) if hostile.random() < 0.05 else line) + b"\n" for line in lines
        )
        packed = gzip.compress(data, 1)
        path.write_bytes(hostile.bytes(packed) if hostile.random() < 0.5 else packed)
        found = refused_or(read_shipped, path)
        if found is not None:
            read.append(found)
    assert read


def test_a_gzip_bomb_is_left_where_it_grows_too_large(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_evidence, "_LARGEST", 20 << 20)
    path = place / "cpu.jsonl.gz"
    line = json.dumps(files()[1][1][0]).encode() + b"\n"
    for bomb in (b" " * 100_000_000, line * 100_000):
        path.write_bytes(gzip.compress(bomb, 1))
        assert path.stat().st_size < 5_000_000
        assert limited(read_shipped, path, memory=200 << 20) is None


def parquet(path: Path, select: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")


LONG = "repeat('a', 1000000)"
BOMBS = {
    "long lines": "i AS number, 'check' AS kind, repeat('a', 17000000) AS line FROM range(5) t(i)",
    "many lines": "i AS number, 'check' AS kind, 'b' AS line FROM range(150000) t(i)",
    "one line often": f"i AS number, 'run' AS kind, {LONG} AS line FROM range(300) t(i)",
    "another column": f"i AS number, 'run' AS kind, '{{}}' AS line, {LONG} AS machine FROM range(300) t(i)",
    "long plans": f"i AS number, '' AS line, [{{'cell_id': {LONG}, 'checks': ['']}}] AS plan FROM range(300) t(i)",
    "a text for a number": "'1' AS number, 'run' AS kind, '{}' AS line FROM range(9) t(i)",
    "no lines": "1 AS a",
    "a table of tables": "i AS number, '{}' AS line, MAP {'a': 1} AS plan FROM range(9) t(i)",
}


def test_a_parquet_bomb_is_refused_before_it_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_parquet, "LARGEST_TEXT", 200 << 20)  # or making one takes as long as reading it would
    monkeypatch.setattr(reading_parquet, "MOST_ROWS", 100_000)

    def read(folder: Path) -> list[str]:
        said = []
        for call in (
            lambda: list(reading_parquet.owned_lines(folder)),
            lambda: read_latest(folder),
            lambda: read_folder(folder),
        ):
            with pytest.raises(BrokenInput) as error:
                call()
            said.append(error.value.why)
        return said

    for name, select in BOMBS.items():
        folder = place / name
        folder.mkdir()
        parquet(folder / "compacted-0.parquet", f"SELECT 'a.jsonl' AS file, {select}")
        assert (folder / "compacted-0.parquet").stat().st_size < 1_000_000
        assert len(limited(read, folder, memory=5 << 30)) == 3, name  # DuckDB maps more than it uses


@pytest.mark.fuzz(15)
def test_compacted_evidence_with_other_bytes_is_read_or_refused(fuzz: Any, place: Path) -> None:
    write(place, files())
    (path,) = compact(place).paths
    whole = path.read_bytes()

    for hostile in fuzz:
        path.write_bytes(hostile.bytes(whole))
        limited(lambda: bool(refused_or(read_folder, place)), memory=5 << 30)
        limited(lambda: bool(refused_or(read_latest, place)), memory=5 << 30)
