"""The columns that DuckDB reads from lines of evidence, in JSON lines and in Parquet."""

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
"""In bytes: more than the plan of any run."""

MOST_BRACKETS = 1_000_000
"""Lists and objects in one line. A plan of 10,000 suites has a tenth of it."""

MEMORY_LIMIT = "1500MB"
"""The memory that DuckDB may use before it writes to temporary files."""

DISK_LIMIT = "16GB"
"""The disk space that its temporary files may use."""

PLAN_NAMES = ("cell_id", "checks", "suite", "suite_hash", "subject", "made_from", "recipe", "modeling")
"""The fields of a planned suite that decide whether its results still count."""

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
    """Return DuckDB's type of every field that a line may have, by name. Text and numbers keep their types, mappings
    become MAP, and nested values such as plans and inventories become JSON."""
    every = (one for kind in (RunLine, CheckLine, EndLine) for one in dataclasses.fields(kind))
    return {one.name: _TYPES.get(str(one.type).removesuffix(" | None"), "JSON") for one in every}


@contextlib.contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory DuckDB that fetches no extension and spills to a temporary folder."""
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
    """Create the table `raw` from JSON lines: `COLUMNS`, `path`, and `number`, the line's number in its file from 0.

    Empty lines are left out. A line that isn't a JSON object is a row of NULLs.
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
    """Return the files of a table with anything but whole lines of this version, as far as columns show."""
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
