"""`hwcompat localize CELL`: report the first module or node that differs from the reference."""

from __future__ import annotations

from hwcompat.hardware.command_line import note
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.plain_text import json_text
from hwcompat.reports.delivery import print_or_write
from hwcompat.reports.formats import suffix_of
from hwcompat.reports.report_request import Request
from hwcompat.reports.text import code, listed, markdown

from .localization.localization_result import ErrorPlace, Localization, LocalizationOutcome
from .localization.localize_cell import checked_cell, localize_cell

SCHEMA_VERSION = 1
_SHOWN = 5
_SAID = {
    LocalizationOutcome.AGREES: "agrees everywhere",
    LocalizationOutcome.NAMED: "wrong by itself",
    LocalizationOutcome.PRECISION: "beyond tolerance by rounding alone",
    LocalizationOutcome.GROWS: "errors add up",
    LocalizationOutcome.UNNAMED: "outputs are wrong, no single place is",
    LocalizationOutcome.BROKE: "broke",
}


def report_localization(request: Request, text: str) -> int:
    """Localize the cell, print or write the result, and return the exit code: 0 if the cell agrees everywhere, or is
    off by rounding alone with its outputs within tolerance; else 1. Raises what `checked_cell` and `localize_cell`
    raise."""
    cell = checked_cell(text)
    note(f"localizing {cell.id}: a few seconds to a minute")
    found = localize_cell(cell)
    output = localization_json(found, now()) if request.format == "json" else localization_markdown(found)
    print_or_write(f"{output}\n", request.output_dir, f"localization.{suffix_of(request.format)}")
    return exit_code(found)


def exit_code(found: Localization) -> int:
    """Return 0 if the cell's results are right, else 1."""
    return (
        0
        if found.finding is LocalizationOutcome.AGREES
        or (found.finding is LocalizationOutcome.PRECISION and found.is_whole)
        else 1
    )


def localization_json(found: Localization, timestamp: str) -> str:
    """Return JSON as `schemas/localization.json` describes it."""
    return json_text({"schema_version": SCHEMA_VERSION, "timestamp": timestamp, **found.to_dict()})


def localization_markdown(found: Localization) -> str:
    """Return a few lines of Markdown; the first one names the place and the error."""
    lines = [f"{code(found.cell)}: {_headline(found)}", ""]
    if found.place is not None and found.finding is not LocalizationOutcome.BROKE:
        lines += [f"- {line}" for line in _facts(found.place)]
    error = "not computed" if found.outputs_error is None else f"{found.outputs_error:.2e}"
    lines.append(f"- Outputs: error {error} relative to their scale, tolerance {found.tolerance:g}")
    if found.compared:
        left = f", {found.left_out} skipped" if found.left_out else ""
        lines.append(
            f"- Compared: {found.compared} {found.granularity}s{left}; reference: {markdown(found.reference)}"
        )
    lines += [f"- Note: {markdown(one, longest=600)}" for one in found.notes]
    if found.others:
        names = [f"{_name(one)} ({_error(one.own_error)})" for one in found.others]
        lines.append(f"- Also wrong by themselves: {listed(names, _SHOWN)}")
    return "\n".join(lines)


def _headline(found: Localization) -> str:
    said = _SAID[found.finding]
    if found.place is None:
        return f"**{said}**"
    if found.finding is LocalizationOutcome.BROKE:
        return f"**{said}** in {_name(found.place)}"
    if found.finding is LocalizationOutcome.GROWS:
        return (
            f"**{said}**, beyond tolerance first in {_name(found.place)}; no {found.granularity} is wrong by itself"
        )
    return f"{_name(found.place)} is **{said}**"


def _name(place: ErrorPlace) -> str:
    name = code(place.name) if place.name else "the model itself"
    kind = f" ({markdown(place.kind)})" if place.kind else ""
    return f"{name}{kind}" + (f", call {place.call + 1}" if place.call else "")


def _facts(place: ErrorPlace) -> list[str]:
    facts = [f"Tensor: {markdown(place.tensor)}, {_shape(place.shape, place.dtype)}"]
    if (place.shape, place.dtype) != (place.expected_shape, place.expected_dtype):
        facts[0] += f"; the reference has {_shape(place.expected_shape, place.expected_dtype)}"
    facts.append(f"Error with the reference's inputs: {_error(place.own_error)} of the tensor's scale")
    if place.error is not None:
        inputs = "" if place.input_error is None else f" (its inputs: {_error(place.input_error)})"
        facts.append(f"Error in the ordinary run: {_error(place.error)}{inputs}")
    if place.module:
        facts.append(f"Module: {code(place.module)}")
    if place.within:
        facts.append(f"Not distinguishable from: {', '.join(map(code, place.within[:_SHOWN]))}")
    return facts


def _shape(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype or 'nothing'} [{', '.join(map(str, shape))}]"


def _error(error: float | None) -> str:
    return "not compared" if error is None else f"{error:.2e}"
