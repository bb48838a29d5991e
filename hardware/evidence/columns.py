"""What lines of evidence are told apart by: the columns that DuckDB reads of them, from JSON lines and Parquet."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .record import READABLE, CheckLine, EndLine, Origin, Outcome, RunLine

if TYPE_CHECKING:
    import duckdb

LONGEST_LINE = 16 * 1024 * 1024
"""In bytes: more than any run's plan has."""

MOST_BRACKETS = 1_000_000
"""Lists and tables in one line: a plan of ten thousand suites has a tenth of it."""

MEMORY_LIMIT = "1500MB"
"""What DuckDB may hold; beyond that it writes to temporary files."""

DISK_LIMIT = "16GB"
"""What it may put aside."""

PLAN_NAMES = ("cell_id", "checks", "suite", "suite_hash", "subject", "made_from", "recipe", "modeling")
"""The fields of a planned suite that tell whether its results still count."""

PLAN = f"STRUCT({', '.join(f'{name} VARCHAR' + '[]' * (name == 'checks') for name in PLAN_NAMES)})[]"
COLUMNS = {
    "kind": "VARCHAR",
    "schema_version": "VARCHAR",
    "run_id": "VARCHAR",
    "cell_id": "VARCHAR",
    "check_name": "VARCHAR",
    "outcome": "VARCHAR",
    "error_type": "VARCHAR",
    "requested_target": "VARCHAR",
    "accelerator": "VARCHAR",
    "started_at": "VARCHAR",
    "origin": "VARCHAR",
    "machine": "VARCHAR",
    "versions": "JSON",
    "resumes": "VARCHAR[]",
    "plan": PLAN,
}

_CHECK = ("run_id", "cell_id", "check_name", "outcome", "requested_target", "started_at")
_RUN = ("run_id", "started_at", "machine", "versions", "plan")


_TYPES = {
    **dict.fromkeys(("str", "Outcome", "Stage", "Origin"), "VARCHAR"),
    "int": "BIGINT",
    "float": "DOUBLE",
    "Mapping[str, str]": "MAP(VARCHAR, VARCHAR)",
    "Mapping[str, int]": "MAP(VARCHAR, BIGINT)",
    "tuple[str, ...]": "VARCHAR[]",
}


def every_column() -> dict[str, str]:
    """DuckDB's type of every field that a line may have, from what the lines are in Python: text and numbers as they
    are, mappings of them as MAP, and what has a form of its own, as a plan or an inventory, as JSON."""
    every = (one for kind in (RunLine, CheckLine, EndLine) for one in dataclasses.fields(kind))
    return {one.name: _TYPES.get(str(one.type).removesuffix(" | None"), "JSON") for one in every}


@contextlib.contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB in memory, which fetches no extension, and puts aside in a temporary folder what doesn't fit."""
    import duckdb

    with tempfile.TemporaryDirectory() as temporary:
        settings: dict[str, Any] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": temporary,
            "max_temp_directory_size": DISK_LIMIT,
        }
        with contextlib.closing(duckdb.connect(config=settings)) as connection:
            yield connection


def read_raw(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Make the table `raw` of JSON lines: `COLUMNS`, `path`, and `number`, that of a line in its file from 0.

    Empty lines are left out. What is no line at all is a row of NULLs.
    """
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE scanned AS SELECT * FROM read_json(?, format='newline_delimited', "
        "hive_partitioning=false, ignore_errors=true, filename='path', "
        f"maximum_object_size={LONGEST_LINE}, columns={{{columns}}})",
        [[str(path) for path in paths]],
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE starts AS SELECT path, min(rowid) AS first FROM scanned GROUP BY path; "
        "CREATE OR REPLACE TEMP VIEW raw AS "
        "SELECT scanned.*, scanned.rowid - first AS number FROM scanned JOIN starts USING (path)"
    )


def unusual_paths(connection: duckdb.DuckDBPyConnection, table: str = "raw") -> set[str]:
    """The files of a table in which something isn't a whole line of this version, as far as the columns tell."""
    outcomes, origins = (", ".join(f"'{one}'" for one in kinds) for kinds in (Outcome, Origin))
    lacking = {
        kind: " OR ".join(f"{name} IS NULL" for name in names) for kind, names in (("check", _CHECK), ("run", _RUN))
    }
    found = connection.execute(
        f"SELECT DISTINCT path FROM {table} WHERE kind IS NULL OR schema_version IS NULL "
        f"OR schema_version NOT IN {tuple(map(str, READABLE))} "
        f"OR kind NOT IN ('run', 'check', 'end') OR origin NOT IN ({origins}) "
        f"OR (kind = 'check' AND ({lacking['check']} OR outcome NOT IN ({outcomes}))) "
        f"OR (kind = 'run' AND ({lacking['run']} OR json_type(versions) <> 'OBJECT' OR len(list_filter(plan, "
        "lambda one: one.cell_id IS NULL OR one.checks IS NULL OR one.suite IS NULL OR one.suite_hash IS NULL "
        "OR one.subject IS NULL OR list_contains(one.checks, NULL))) > 0))"
    ).fetchall()
    return {path for (path,) in found}
