"""`hwcompat compare-devices A B`: report where two devices differ, and which one is nearer to float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.evidence.record import plain
from hwcompat.hardware.plain_text import json_text
from hwcompat.reports.delivery import SUFFIXES, print_or_write
from hwcompat.reports.document import Block, Heading, Table, document
from hwcompat.reports.progress_bar import working_on
from hwcompat.reports.report_request import Request

from .device_comparison.compare_runs import DeviceComparison, TensorDifference, compare_devices, is_kept
from .device_comparison.device_run import EXACT, MOST_KEPT

SCHEMA_VERSION = 1


def report_comparison(
    request: Request,
    sides: tuple[str, str],
    model: str,
    task: str,
    precision: str,
    steps: int,
    keep: Path | None = None,
) -> int:
    """Compare two sides, print or write the result, and return 0 if they agree, else 1.

    Raises `UsageError` for the same side twice, and what `compare_devices` raises.
    """
    names = [one if is_kept(one) else str(resolve_target(one)) for one in sides]
    if names[0] == names[1]:
        raise UsageError(f"A and B are both {names[0]}", fix="Name two targets, or a target and a kept file.")
    recipe = recipe_for(classify(model).model_type, task or None)
    with working_on(f"running {recipe.model_type} on {names[0]}, on {names[1]} and in float64"):
        found = compare_devices((names[0], names[1]), recipe.model_type, recipe.task, precision, steps, keep)
    if keep is not None:
        note(f"runs of targets: {keep}")
    form = request.file_format
    if form == "json":
        values = {"schema_version": SCHEMA_VERSION, **asdict(found), "agrees": found.agrees, "nearer": found.nearer}
        text = json_text(plain(values)) + "\n"
    else:
        text = document(_blocks(found), form)
    print_or_write(text, request.output_dir, f"device-comparison.{SUFFIXES[form]}")
    return int(not found.agrees)


def _blocks(found: DeviceComparison) -> Iterator[Block]:
    first, second = found.sides
    yield Heading(level=1, text=f"{found.model} ({found.task}): {first} and {second}")
    yield _headline(found)
    for side, device, version in zip(found.sides, found.devices, found.versions, strict=True):
        yield f"{side}: {device or 'unknown device'}; {version}"
    if found.tensors:
        headings = ["layer or output", f"{first} to {second}", f"{first} to float64", f"{second} to float64"]
        rows = [[_name(one), *map(_number, (one.apart, *one.errors))] for one in found.tensors]
        yield Table(headings=headings, rows=rows, short=["layer", "A to B", "A to float64", "B to float64"])
        yield (
            f"Differences are relative to the spread of each tensor. Tolerance: {found.tolerance:g}, the larger "
            "one of both targets."
        )
    if found.is_thinned:
        yield f"Of tensors with more than {MOST_KEPT:,} elements, evenly spaced elements are compared."
    yield from _of_tokens(found)


def _headline(found: DeviceComparison) -> str:
    if found.why:
        return f"Not compared. {found.why}"
    beyond, largest = found.first_beyond, found.largest
    agree = "The outputs agree within the tolerance." if found.agrees else "The two devices don't agree."
    if beyond is not None:
        agree += f" The first difference beyond the tolerance is in {_name(beyond)} ({_number(beyond.apart)})."
    elif largest is not None:
        agree += f" The largest difference is in {_name(largest)} ({_number(largest.apart)})."
    return agree + (f" Nearer to {EXACT}: {found.nearer}." if found.nearer else "")


def _of_tokens(found: DeviceComparison) -> Iterator[Block]:
    if found.decode_error:
        yield f"Decoding failed. {found.decode_error}"
    if not found.steps:
        if found.why_not_decoded and not found.why:
            yield f"No tokens were compared: {found.why_not_decoded}."
        return
    yield Heading(level=2, text="Decoded tokens")
    headings = ["step", "difference of logits", "rows whose tokens part"]
    rows = [
        [str(one.step + 1), _number(one.apart), _rows(one.rows) + (" (float64 doesn't decide)" if one.is_tie else "")]
        for one in found.steps
    ]
    yield Table(headings=headings, rows=rows, short=["step", "difference", "rows that part"])
    parting = found.parting
    yield (
        f"All {len(found.steps)} steps have the same tokens, except where float64 doesn't decide."
        if parting is None
        else f"The tokens part at step {parting.step + 1}; later steps of these rows aren't compared."
    )


def _rows(rows: tuple[int, ...]) -> str:
    return ", ".join(map(str, rows)) or "none"


def _name(one: TensorDifference) -> str:
    return one.name if one.is_layer else f"{one.name} (output)"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "not comparable" if math.isinf(value) else f"{value:.1e}"
