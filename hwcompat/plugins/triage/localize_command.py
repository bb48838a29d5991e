"""`hwcompat localize CELL`: report the first module or node that differs from the reference."""

from __future__ import annotations

from hwcompat.hardware.cell import GRAPH_TASK
from hwcompat.hardware.command_line import note
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.plain_text import json_text
from hwcompat.plugins.study.refresh.expired_cells import as_run_before
from hwcompat.reports.delivery import SUFFIXES, print_or_write
from hwcompat.reports.document import Answer, document
from hwcompat.reports.progress_bar import working_on
from hwcompat.reports.report_request import Request
from hwcompat.reports.text import listed

from .localization.localization_result import ErrorPlace, Localization, LocalizationOutcome
from .localization.localize_cell import checked_cell, localize_cell
from .repro_command import evidence_of, planned_again

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
    planned = planned_again(as_run_before(cell, evidence_of(request))) if cell.task == GRAPH_TASK else None
    note(f"localizing {cell.id}: a few seconds to a minute")
    with working_on("running the cell and its reference"):
        found = localize_cell(cell, planned)
    form = request.file_format
    text = f"{localization_json(found, now())}\n" if form == "json" else document([answer_of(found)], form)
    print_or_write(text, request.output_dir, f"localization.{SUFFIXES[form]}")
    return exit_code(found)


def exit_code(found: Localization) -> int:
    """Return 0 if the cell's results are right, else 1."""
    rounding = found.finding is LocalizationOutcome.PRECISION and found.is_whole
    return int(not (rounding or found.finding is LocalizationOutcome.AGREES))


def localization_json(found: Localization, timestamp: str) -> str:
    """Return JSON as `schemas/localization.json` describes it."""
    return json_text({"schema_version": SCHEMA_VERSION, "timestamp": timestamp, **found.to_dict()})


def answer_of(found: Localization) -> Answer:
    """Return the place and the error, and the facts behind them."""
    return Answer(cell=found.cell, text=_headline(found), facts=_facts(found))


def _headline(found: Localization) -> str:
    said = _SAID[found.finding]
    if found.place is None:
        return said
    if found.finding is LocalizationOutcome.BROKE:
        return f"{said} in {_name(found.place)}"
    if found.finding is LocalizationOutcome.GROWS:
        return f"{said}, beyond tolerance first in {_name(found.place)}; no {found.granularity} is wrong by itself"
    return f"{_name(found.place)} is {said}"


def _name(place: ErrorPlace) -> str:
    kind = f" ({place.kind})" if place.kind else ""
    return f"{place.name or 'the model itself'}{kind}" + (f", call {place.call + 1}" if place.call else "")


def _facts(found: Localization) -> list[tuple[str, str]]:
    """Return what was found as labels and texts."""
    facts = _facts_of(found.place) if found.place and found.finding is not LocalizationOutcome.BROKE else []
    error = "error {:.2e} of their scale, tolerance {:g}"
    known = found.outputs_error is not None
    facts.append(("Outputs", error.format(found.outputs_error, found.tolerance) if known else "not computed"))
    if found.compared:
        left = f", {found.left_out} left out" if found.left_out else ""
        facts.append(("Compared", f"{found.compared} {found.granularity}s{left}; reference: {found.reference}"))
    facts += [("Note", one) for one in found.notes]
    if found.others:
        names = [f"{_name(one)} ({_error(one.own_error)})" for one in found.others]
        facts.append(("Also wrong by themselves", listed(names, _SHOWN)))
    return facts


def _facts_of(place: ErrorPlace) -> list[tuple[str, str]]:
    tensor = f"{place.tensor}, {_shape(place.shape, place.dtype)}"
    if (place.shape, place.dtype) != (place.expected_shape, place.expected_dtype):
        tensor += f"; the reference has {_shape(place.expected_shape, place.expected_dtype)}"
    facts = [
        ("Tensor", tensor),
        ("Error", f"{_error(place.own_error)} of the tensor's scale, with the reference's inputs"),
    ]
    if place.error is not None:
        inputs = "" if place.input_error is None else f" (its inputs: {_error(place.input_error)})"
        facts.append(("In the ordinary run", f"{_error(place.error)}{inputs}"))
    if place.module:
        facts.append(("Module", place.module))
    if place.within:
        facts.append(("Not distinguishable from", ", ".join(place.within[:_SHOWN])))
    return facts


def _shape(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype or 'nothing'} [{', '.join(map(str, shape))}]"


def _error(error: float | None) -> str:
    return "not compared" if error is None else f"{error:.2e}"
