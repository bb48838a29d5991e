"""Published results as evidence: rows become lines of cells, by the words and names of `published.toml`.

The results in `published.tsv.gz` ship with the package (`published_notice.txt` has sources and licenses).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path
from typing import Any

from hwcompat.generators.models.basic_classification import classify_or_guess
from hwcompat.generators.models.model_libraries import catalog_of, is_known, known_types
from hwcompat.generators.models.model_names import known_words, type_in_name
from hwcompat.generators.models.recipe_store import load_recipe
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import BrokenInput, UsageError, echo
from hwcompat.hardware.evidence.importers.table import rows as rows_of_table
from hwcompat.hardware.evidence.published import HARNESS, Row
from hwcompat.hardware.evidence.record import CheckLine, Origin, Outcome, WeightsKind
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.target import Target
from hwcompat.hardware.values import data_file

from .imported import UNDECIDED, imported_verdicts
from .verdict import Verdict

SHIPPED = Path(__file__).with_name("published.tsv.gz")
_FILE = Path(__file__).with_name("published.toml")
_NO_TASK = "not-stated"
"""The task of a type that this version doesn't know."""

_LONGEST_DETAIL = 300
_TRAINING = "training"
_DECIDE = ("works", "in_part", "fails")
_OUTCOMES = {
    "works": Outcome.PASSED,
    "in_part": Outcome.PASSED_ON_FALLBACK,
    "fails": Outcome.FAILED,
    "too_large": Outcome.OUT_OF_MEMORY,
    "unclear": Outcome.AMBIGUOUS,
    "skipped": Outcome.SKIPPED,
    "not_run": Outcome.NOT_RUN,
}


@dataclass(frozen=True, kw_only=True)
class Named:
    """The model type that a published name means, and why the row decides nothing if it isn't certain."""

    model_type: str
    undecided: str = ""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a file doesn't say: version or commit, license and day of the source, and target and precision of rows
    without one."""

    version: str = ""
    license: str = ""
    day: str = ""
    target: str = ""
    precision: str = ""


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """The lines of rows, the number of rows dropped because of their set-up, and the names without a type."""

    lines: tuple[CheckLine, ...]
    harness: int = 0
    unmapped: Mapping[str, int] = field(default_factory=dict)


@functools.cache
def _words(section: str) -> Mapping[str, str]:
    """Return the group of each word of a section: `w8a16` → `int8`."""
    return {word: group for group, words in _data()[section].items() for word in words}


@functools.cache
def _data() -> Mapping[str, Any]:
    return data_file(_FILE)


@functools.lru_cache(maxsize=1024)
def source_of(source: str) -> Mapping[str, str]:
    """Return what `published.toml` says about a row's source; `name` is the source itself if it isn't there."""
    known = next((one for one in _data()["source"] if source.startswith(one["prefix"])), None)
    return known or {"name": source.partition(":")[0], "publishes": "all"}


@functools.cache
def _names() -> tuple[tuple[str, re.Pattern[str], Mapping[str, str]], ...]:
    return tuple(
        (one.get("from", ""), re.compile("|".join(map(translate, one["of"]))), one) for one in _data()["name"]
    )


def type_of(row: Row) -> Named | None:
    """Return the type that a row's name means; None if it means none."""
    return _named(source_of(row.source).get("prefix", ""), row.model, row.model_type, row.confidence)


@functools.cache
def _shipped_names() -> Mapping[tuple[str, str], str]:
    """Return the types of the names in the shipped results that are certain, by source and the name's first part."""
    return {
        (source_of(row.source).get("prefix", ""), row.model.partition("/")[0]): row.model_type
        for row in shipped_rows()
        if "/" in row.model and not row.confidence
    }


@functools.lru_cache(maxsize=65536)
def _named(source: str, model: str, model_type: str, confidence: str) -> Named | None:
    for start, pattern, one in _names():
        if start in ("", source) and pattern.match(model):
            if one["type"]:
                return Named(model_type=one["type"])
            return Named(model_type=model_type or re.sub(r"[^A-Za-z0-9._@+-]", "-", model), undecided=one["reason"])
    if model_type:
        guessed = f"the type was found by {confidence} and not checked" if confidence else ""
        return Named(model_type=model_type, undecided=guessed)
    if shipped := _shipped_names().get((source, model.partition("/")[0])):
        return Named(model_type=shipped)
    plain = model.partition("/")[0] if model.count("/") > 1 else model.rpartition("/")[2]
    for spelled in (plain, plain.replace("-", "_"), plain.replace("_", "-")):
        if is_known(spelled):
            return Named(model_type=spelled)
    types = catalog_of("bert").types_of_class(model)
    if len(types) == 1:
        return Named(model_type=types[0])
    found = type_in_name(plain, known_types(), known_words())
    if found is None or not found.model_type:
        return None
    return Named(model_type=found.model_type, undecided="the type was guessed from the name")


@functools.lru_cache(maxsize=4096)
def _task_of(model_type: str) -> str:
    if model_type.startswith("ggml."):
        return "operator"
    recipe = load_recipe(model_type)
    if recipe is not None:
        return recipe.task
    known = classify_or_guess(model_type)[0] if is_known(model_type) else None
    return known.task if known is not None and known.task else _NO_TASK


@functools.lru_cache(maxsize=65536)
def _cell(model_type: str, target: str, route: str, precision: str) -> Cell:
    """Return the cell of a row. Raises `UsageError` if a part isn't valid, `BrokenInput` for an unknown precision."""
    data = _data()
    target = data["provider"].get(route, target)
    target = data["devices"]["own_name"].get(target, target)
    if not precision:
        found = (one["precision"] for pattern, one in data["unstated"].items() if fnmatchcase(route, pattern))
        meant = next(found, "float32")
    elif not (meant := _precision(precision.lower())):
        raise BrokenInput(
            f"{echo(precision)} is an unknown precision", fix=f"Known: {', '.join(_words('precision'))}."
        )
    return Cell(model=model_type, task=_task_of(model_type), target=Target.parse(target), precision=meant)


def _precision(word: str) -> str:
    return next((group for pattern, group in _words("precision").items() if fnmatchcase(word, pattern)), "")


def _conditions(row: Row, given: Given, undecided: str) -> dict[str, str]:
    known = source_of(row.source)
    found = re.search(r"==([^:]+)|@([0-9a-f]{7,40})", row.source)
    version = given.version or (found[1] or found[2] if found else "")
    texts = {
        "source": f"{known['name']} {version}".strip(),
        "file": row.source,
        "version": version,
        "license": given.license or known.get("license", ""),
        "published": given.day,
        "route": row.route,
        "mode": row.mode,
        "model": row.model,
        "as": row.precision,
        "result": row.outcome,
        "detail": one_line(row.detail, longest=_LONGEST_DETAIL),
        UNDECIDED: undecided,
    }
    return {name: text for name, text in texts.items() if text}


def lines_of(rows: Iterable[Row], run_id: str, moment: str, given: Given | None = None) -> Mapped:
    """Return the lines of rows for a run that imports them at a moment.

    Rows that failed because of their set-up are dropped, and so are names without a type; both are counted. Raises
    `BrokenInput` for an unknown outcome or precision, or a row without a target.
    """
    given = given or Given()
    lines: list[CheckLine] = []
    numbers: Counter[str] = Counter()
    unmapped: Counter[str] = Counter()
    harness = 0
    for row in rows:
        group = _group(row)
        if row.outcome == HARNESS or (group == "fails" and _is_harness(row.detail)):
            harness += 1
            continue
        if not group:
            raise BrokenInput(
                f"{echo(row.outcome)} is an unknown outcome", fix=f"Known: {', '.join(_words('outcome'))}."
            )
        known = type_of(row)
        if known is None:
            unmapped[row.model] += 1
            continue
        target = row.target or given.target
        if not target:
            raise UsageError(f"the result of {echo(row.model)} names no target", fix="Name it: --target NAME")
        cell = _cell(known.model_type, target, row.route, row.precision or given.precision)
        numbers[cell.id] += 1
        mode = re.sub(r"[^a-z0-9]+", "_", row.mode.lower()).strip("_") or "result"
        trains = "it is about training" if row.mode.startswith(_TRAINING) else ""
        undecided = known.undecided or trains
        lines.append(
            CheckLine(
                run_id=run_id,
                cell_id=cell.id,
                check_name=f"{mode}_{numbers[cell.id]}",
                outcome=_outcome(row.outcome, group),
                subject=str(WeightsKind.CHECKPOINT),
                requested_target=str(cell.target),
                actual_target=str(cell.target),
                precision=cell.precision,
                model=cell.model,
                task=cell.task,
                suite_hash="",
                started_at=moment,
                duration_s=0.0,
                accelerator=row.device if row.device not in ("", *_data()["devices"]["not_devices"]) else None,
                conditions=_conditions(row, given, undecided),
                error_message=one_line(row.detail, longest=_LONGEST_DETAIL) if group == "fails" else "",
                origin=Origin.IMPORTED,
            )
        )
    return Mapped(lines=tuple(lines), harness=harness, unmapped=dict(unmapped))


def _group(row: Row) -> str:
    """Return what an outcome says: a group of `published.toml`, empty for an unknown word."""
    group = _words("outcome").get(row.outcome, "")
    if group == "fails" and _is_too_large(source_of(row.source).get("prefix", ""), row.model):
        return "too_large"
    return group


@functools.lru_cache(maxsize=4096)
def _is_too_large(source: str, model: str) -> bool:
    return any(
        one["from"] == source and any(fnmatchcase(model, of) for of in one["of"]) for one in _data()["too_large"]
    )


def _outcome(word: str, group: str) -> Outcome:
    return Outcome(word) if word in ("timeout", "crashed") else _OUTCOMES[group]


def _is_harness(detail: str) -> bool:
    return any(message in detail for message in _data()["harness"]["messages"])


@functools.cache
def shipped_rows() -> tuple[Row, ...]:
    """Return the published results that ship with the package."""
    return tuple(rows_of_table(SHIPPED))


@functools.cache
def shipped_lines() -> tuple[CheckLine, ...]:
    """Return the lines of the shipped results that can decide a level."""
    return _deciding(shipped_rows())


def _deciding(rows: Iterable[Row]) -> tuple[CheckLine, ...]:
    decide = (row for row in rows if _group(row) in _DECIDE and not row.mode.startswith(_TRAINING))
    return lines_of(decide, "published", "").lines


def shipped_verdicts(model: str = "") -> Mapping[str, Verdict]:
    """Return the verdict of each cell that the shipped results decide, by id; of one model type if it is named."""
    return _verdicts_of(model) if model else _all_verdicts()


@functools.lru_cache(maxsize=4096)
def _verdicts_of(model: str) -> Mapping[str, Verdict]:
    return imported_verdicts(
        _deciding(row for row in shipped_rows() if (known := type_of(row)) and known.model_type == model)
    )


@functools.cache
def _all_verdicts() -> Mapping[str, Verdict]:
    return imported_verdicts(shipped_lines())
