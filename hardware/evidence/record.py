"""The lines of an evidence file: the plan of a run, the result of each check, and the end of the run.

One JSON object a line, one file a process (`<run_id>-<pid>.jsonl`), appended and flushed line by line. The published
schema is `schemas/evidence.json`; `SCHEMA_VERSION` changes with the meaning of a field.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from ..errors import BrokenInput

SCHEMA_VERSION = 2
READABLE = (1, 2)
"""The schema versions that can be read. Version 2 stores the reasons of predictions as codes with parameters."""


class Origin(StrEnum):
    """The source of a line. Only our own tests compare with our reference, and only they measure a level.

    `changed` are our tests under a changed condition (`hardware/applied_fix.py`), which don't apply to the cell
    without it. `imported` are results that others published: they give a level with the basis `imported`.
    """

    HWCOMPAT = "hwcompat"
    TRANSFORMERS = "transformers"
    CHANGED = "changed"
    IMPORTED = "imported"


EDITED = "suite edited"
"""The condition of every line of an edited suite, and of one beside which pytest loaded a conftest.py that isn't the
generated one: what its checks assert is unknown."""

OUTDATED = "suite outdated"
"""The condition of every line of a suite that was made from other template revisions than those of the run: its
checks aren't the ones that the run's revisions name."""

PRODUCTS = "products"
"""The condition that has the precision of float32 products, of a target that failed."""

COARSE = "coarse_functions"
"""The condition that names the functions of a graph for which the target's standard allows less precision."""

_Built = TypeVar("_Built")

_FIELD_TYPES: Mapping[str, type] = {"str": str, "int": int, "float": float, "Mapping": dict}
_VALUE_TYPES: Mapping[str, type] = {"Mapping[str, str]": str, "Mapping[str, int]": int}


def latest_moment(*, ahead_days: int = 1) -> str:
    """Return the moment so many days from now, ISO 8601. No clock is wrong by more than a day by accident."""
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=ahead_days)).isoformat()


class Outcome(StrEnum):
    """The outcome of a check. Only `passed` is a pass."""

    PASSED = "passed"
    PASSED_ON_FALLBACK = "passed_on_fallback"
    AMBIGUOUS = "ambiguous"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"

    @property
    def is_failure(self) -> bool:
        """Whether something was tried and didn't work."""
        return self is Outcome.FAILED or self.is_breakdown

    @property
    def is_breakdown(self) -> bool:
        """Whether the process hung, died or ran out of memory, so that nothing was compared."""
        return self in _BREAKDOWNS


_BREAKDOWNS = frozenset({Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY})


class Stage(StrEnum):
    """The stage that a check had reached."""

    IMPORT = "import"
    CONFIG = "config"
    BUILD = "build"
    EXPORT = "export"
    CONVERT = "convert"
    COMPILE = "compile"
    LOAD = "load"
    RUN = "run"
    COMPARE = "compare"


class WeightsKind(StrEnum):
    """The weights that ran."""

    TINY = "tiny"
    CONFIG = "config"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    """One suite of a plan: its cell, its checks in file order, its file's name and hash, and its prediction.

    `selection` is how `auto` selected the target, step by step. `recipe` is the digest of the recipe that the suite
    was made from, if it is kept; plans from before revisions were declared have `made_from` instead, a hash of the
    recipe and of all templates. `modeling` is the fingerprint of the type's installed modeling files (`modeling.py`),
    empty if it has none.
    """

    cell_id: str
    checks: tuple[str, ...]
    suite: str
    suite_hash: str
    subject: str
    verdict: Mapping[str, Any] | None = None
    selection: Mapping[str, Any] | None = None
    made_from: str | None = None
    recipe: str | None = None
    modeling: str = ""


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """The start of a run: machine, versions, plan and the stored predictions, written before the first child starts.

    `resumes` are the runs that this one resumes, newest first: the plan holds only what it runs itself. `jobs` is how
    many children ran at a time: with several, latencies were measured beside other work. Runs of another `origin`
    know their plan only after collection and write it then. `node` is the fleet's name of the node, one of possibly
    several of a machine; empty outside fleets. `cleared` are flaky cells whose quarantine a user ended, each with the
    reason: such a run is `changed` and has no plan, so that earlier versions ignore it.
    """

    run_id: str
    started_at: str
    command: str
    machine: str
    inventory: Mapping[str, Any]
    versions: Mapping[str, str]
    plan: tuple[PlannedCell, ...]
    isolation: str = "process"
    resumes: tuple[str, ...] = ()
    jobs: int = 1
    origin: Origin = Origin.HWCOMPAT
    node: str = ""
    cleared: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    kind: str = "run"


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """The result of one check of one cell.

    Errors are relative to the output's scale (`max_rel_error`, compared with `tolerance`) or absolute; times are in
    the unit in their name, memory in bytes. `None` means not measured. `speed` is the cell's, on its last check, if
    measured (`hardware/testing/speed_measurement.py`).
    """

    run_id: str
    cell_id: str
    check_name: str
    outcome: Outcome
    subject: str
    requested_target: str
    actual_target: str | None
    precision: str
    model: str
    task: str
    suite_hash: str
    started_at: str
    duration_s: float
    model_revision: str | None = None
    config_hash: str | None = None
    architecture: str | None = None
    substitution_reason: str = ""
    accelerator: str | None = None
    actual_dtype: str | None = None
    batch: int | None = None
    sequence_length: int | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    stage: Stage | None = None
    error_type: str = ""
    error_message: str = ""
    traceback: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: float | None = None
    native_ops: Mapping[str, int] = field(default_factory=dict)
    offloaded_ops: Mapping[str, int] = field(default_factory=dict)
    unseen: str = ""
    latency_ms: float | None = None
    peak_memory_bytes: int | None = None
    speed: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = Origin.HWCOMPAT
    schema_version: int = SCHEMA_VERSION
    kind: str = "check"

    @property
    def evidence_id(self) -> str:
        """The name of this line in verdicts and reports."""
        return f"{self.run_id}/{self.cell_id}/{self.check_name}"

    @property
    def is_to_come(self) -> bool:
        """Whether it is dated more than a day from now."""
        return self.started_at > latest_moment()


@dataclass(frozen=True, kw_only=True)
class EndLine:
    """The end of a run; a run without it was killed or is running.

    `files` seals what the run and those it resumes wrote: SHA-256 by file name (`seals.py`).
    """

    run_id: str
    ended_at: str
    reason: str
    counts: Mapping[str, int]
    files: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    kind: str = "end"


Line = RunLine | CheckLine | EndLine


def to_dict(line: Line) -> dict[str, Any]:
    """Return the JSON object of a line. Numbers that aren't finite become strings, since JSON has none."""
    found: dict[str, Any] = plain(dataclasses.asdict(line))
    return found


def plain(value: Any) -> Any:
    """Return the JSON value of a field."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def from_dict(data: Mapping[str, Any]) -> Line:
    """Return the line that a JSON object describes.

    Raises `BrokenInput` for another kind, another schema version, a missing field or an unknown outcome; unknown
    fields are left out.
    """
    kind = data.get("kind")
    if type(data.get("schema_version")) is not int or data["schema_version"] not in READABLE:
        raise BrokenInput(
            f"evidence of schema version {data.get('schema_version')!r} cannot be read",
            why=f"this version reads {' and '.join(map(str, READABLE))}",
        )
    try:
        if kind == "run":
            cells = tuple(_build(PlannedCell, cell, checks=_names(cell["checks"])) for cell in data["plan"])
            return _build(RunLine, data, plan=cells, resumes=_names(data.get("resumes", ())), origin=_origin(data))
        if kind == "check":
            stage = data.get("stage")
            outcome = Outcome(data["outcome"])
            stage = Stage(stage) if stage else None
            return _build(CheckLine, data, outcome=outcome, stage=stage, origin=_origin(data))
        if kind == "end":
            return _build(EndLine, data)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BrokenInput(f"a {kind!r} line of evidence is broken", why=f"{type(error).__name__}: {error}") from error
    raise BrokenInput(f"{kind!r} is not a kind of evidence line", fix="Known: run, check, end.")


def _build(cls: Callable[..., _Built], data: Mapping[str, Any], **parsed: Any) -> _Built:
    for name, text, kind in _fields(cls):
        if name in data and name not in parsed:
            value = data[name]
            # Most values are plain: a call for each would take most of the time of reading.
            parsed[name] = value if type(value) is kind is not dict else _typed(name, text, kind, value)
    return cls(**parsed)


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, str, type | None], ...]:
    """Return the fields of a class with annotation and type of their values, or None for a type of ours, which the
    caller parses."""
    return tuple(
        (one.name, str(one.type), _FIELD_TYPES.get(str(one.type).removesuffix(" | None").partition("[")[0]))
        for one in dataclasses.fields(cls)
    )


def _origin(data: Mapping[str, Any]) -> Origin:
    """Return the origin of a line; older lines have none and are our own."""
    return Origin(data.get("origin", Origin.HWCOMPAT))


def _names(value: Any) -> tuple[str, ...]:
    """Return a list of strings as a tuple. Lines are untrusted: raises `TypeError` for anything else."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise TypeError("a list of strings was expected")
    return tuple(value)


def _typed(name: str, text: str, kind: type | None, value: Any) -> Any:
    """Return `value` if a field with this annotation may hold it."""
    if value is None and text.endswith(" | None"):
        return None
    if kind is float:
        return float(value)
    if kind is None or not isinstance(value, kind):
        raise TypeError(f"{name} is {type(value).__name__}, not {text}")
    values = _VALUE_TYPES.get(text, object)
    if isinstance(value, Mapping) and not all(isinstance(item, values) for item in value.values()):
        raise TypeError(f"{name} has values that aren't {values.__name__}")
    return value
