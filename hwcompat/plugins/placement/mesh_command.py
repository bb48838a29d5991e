"""`hwcompat mesh SPLIT`: plan a model over several devices, and check its split at tiny size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from hwcompat.generators.options import Options
from hwcompat.hardware.backends.factory import declarations_of
from hwcompat.hardware.basic_detection import inventory_here
from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import BackendUnavailable, NothingMatched, UsageError, echo
from hwcompat.hardware.evidence.writer import now
from hwcompat.hardware.plain_text import columns, folded, json_text, printable, size_text
from hwcompat.reports.saved_reports import keep

from .mesh.axes import COLLECTIVES, STAGES_ONLY, Split, why_not
from .mesh.mesh_case import CHECKS, EFFECT, MeshCase, MeshResult
from .mesh.mesh_check import DEADLINE_S, check_mesh
from .mesh.mesh_input import MeshInput, batch_of, mesh_input
from .mesh.mesh_plan import DoesntFit, MeshPlan, plan_mesh
from .placement_device import Device, Figure, accelerators_of, processor_ranks

if TYPE_CHECKING:
    from hwcompat.hardware.detection import HardwareInfo

SCHEMA_VERSION = 1
FILE = "mesh.json"
_MICROBATCHES = 2


def report_mesh(options: Options, text: str) -> int:
    """Plan, check, print and store a report; return the exit code: 1 if a check failed or nothing fits.

    Raises `MeshRefused` if no such mesh is possible, `BackendUnavailable` if a named device is absent.
    """
    wanted = Split.parse(text)
    if len(options.models) != 1:
        raise UsageError(
            "mesh needs exactly one model", fix="For example: hwcompat mesh data=2,tensor=2 --model llama"
        )
    inventory = inventory_here()
    devices = devices_for(options.devices, inventory, wanted)
    note("building the model without data to count its bytes: a few seconds")
    model = mesh_input(options.models[0], options.precision)
    plan, refused = _real_plan(model, devices, wanted)
    split = wanted or (plan.mesh.split if plan else None)
    result, tiny = None, None
    if split is not None and split.size > 1:
        tiny = plan_mesh(devices, model.tiny_figures, split)
        note(f"checking {split} with {split.size} processes: about ten seconds")
        result = run_check(model, tiny, options.timeout or DEADLINE_S)
    report = report_of(options.models[0], model, plan, refused, tiny, result)
    # A split model isn't a cell, so the result isn't evidence and is stored with reports.
    path = keep(f"{json_text(report)}\n", options.report_dir, FILE, "--report-dir")
    note(f"written: {path}")
    click.echo(json_text(report) if options.format_ == "json" else mesh_text(report), nl=options.format_ == "json")
    return 0 if split is not None and (result is None or result.passed) else 1


def devices_for(names: Sequence[str], inventory: HardwareInfo, wanted: Split | None) -> tuple[Device, ...]:
    """Return the devices that `--device` names: accelerators of this machine, or ranks that share its processor.

    Raises `BackendUnavailable` if a named one is absent, `UsageError` for one that no mesh supports.
    """
    here = accelerators_of(inventory)
    size = wanted.size if wanted else 1
    if not names or tuple(names) == ("auto",):
        usable = [one for one in here if not why_not(one)]
        return tuple(here) if usable else processor_ranks(inventory, size)
    found: list[Device] = []
    for name in dict.fromkeys(names):
        kind = name.partition(":")[0]
        if kind not in COLLECTIVES and kind not in STAGES_ONLY:
            known = ", ".join((*COLLECTIVES, *STAGES_ONLY))
            raise UsageError(f"a mesh can't use {echo(name)}", fix=f"Targets that torch computes on: {known}.")
        if kind == "cpu":
            others = sum(1 for other in names if other.partition(":")[0] != "cpu")
            found += processor_ranks(inventory, max(1, size - others))
        elif declarations_of(kind).SIMULATED:
            unknown = Figure(reason="a device written in Python has no memory of its own")
            found.append(Device(name=kind, target=kind, vendor=kind, memory_total=unknown))
        else:
            own = [one for one in here if name in (one.selector, one.target)]
            if not own:
                raise BackendUnavailable(f"{echo(name)} not found", why="no driver lists such a device")
            found += own
    return tuple(found)


def _real_plan(model: MeshInput, devices: Sequence[Device], wanted: Split | None) -> tuple[MeshPlan | None, str]:
    """Return the plan at real size, or why there is none. Raises `MeshRefused` if the split itself is impossible."""
    if model.real is None:
        if wanted is None:
            raise NothingMatched(f"no split can be chosen for {echo(model.tiny.name)}", why=model.no_real)
        return None, f"the real model's figures are unknown: {model.no_real}"
    try:
        return plan_mesh(devices, model.real, wanted), ""
    except DoesntFit as refusal:
        return None, f"{refusal.what}: {refusal.why}"


def run_check(model: MeshInput, plan: MeshPlan, deadline_s: float) -> MeshResult:
    """Check the tiny model split by its plan, with one process here per rank."""
    split = plan.mesh.split
    microbatches = _MICROBATCHES if split.pipeline > 1 else 1
    case = MeshCase(
        name=f"{model.tiny.name} {split}",
        model=0,
        split=split,
        stages=plan.stages,
        devices=tuple(one.selector for one in plan.mesh.devices),
        microbatches=microbatches,
    )
    inputs = model.arrays(batch_of(split, microbatches))
    return check_mesh([(model.tiny, inputs)], [case], deadline_s=deadline_s)


def report_of(
    name: str,
    model: MeshInput,
    plan: MeshPlan | None,
    refused: str,
    tiny: MeshPlan | None,
    result: MeshResult | None,
) -> dict[str, Any]:
    """Return the report as `hardware/schemas/mesh.json` describes it."""
    split = (tiny or plan).mesh.split if tiny or plan else None  # type: ignore[union-attr] # one of them exists
    checked = None
    if result is not None and tiny is not None:
        checked = {
            "subject": "tiny",
            "model_class": model.tiny.model_class,
            "config": dict(model.tiny.config),
            "parameter_bytes": tiny.figures.total_bytes,
            "precision": "float32",
            "plan": tiny.to_dict(),
        }
    cpu = tiny is not None and all(one.target == "cpu" for one in tiny.mesh.devices)
    return {
        "schema_version": SCHEMA_VERSION,
        "timestamp": now(),
        "model": name,
        "split": str(split) if split else "",
        "figures": model.real.to_dict() if model.real else None,
        "whose": model.whose,
        "plan": plan.to_dict() if plan else None,
        "refused": refused,
        "checked": checked,
        "cases": [one.to_dict() for one in result.cases] if result else [],
        "broken": result.broken if result else "",
        "passed": result.passed if result else None,
        "remark": f"{tiny.mesh.split.size} ranks on one CPU: proves the split, not speed" if cpu and tiny else "",
        "versions": {name: metadata.version(name) for name in ("torch", "transformers")},
    }


def mesh_text(report: Mapping[str, Any]) -> str:
    """Return a report as text that ends in a newline."""
    lines = [*_plan_lines(report), *_case_lines(report)]
    lines += folded("Verdict: ", _verdict(report))
    return "\n".join(lines) + "\n"


def plan_text(figures: Mapping[str, Any], whose: str, plan: Mapping[str, Any] | None, refused: str = "") -> str:
    """Return a plan as text that ends in a newline, from `ModelFigures.to_dict` and `MeshPlan.to_dict`."""
    report = {"figures": figures, "whose": whose, "plan": plan, "refused": refused, "model": figures["name"]}
    return "\n".join(_plan_lines(report)).rstrip() + "\n"


def _plan_lines(report: Mapping[str, Any]) -> list[str]:
    figures, plan = report["figures"], report["plan"]
    lines = []
    if figures:
        size = size_text(sum(figures["layers"]) + figures["before"] + figures["after"])
        said = f"{figures['parameters']:,} parameters, {size} in {figures['dtype']} ({report['whose']})"
        lines += folded(f"Plan of {printable(report['model'])}: ", said)
    if report["refused"]:
        return [*lines, *folded("  impossible: ", report["refused"]), ""]
    if plan:
        rows = []
        for one in plan["ranks"]:
            first, stop = one["layers"]
            layers = f"{first}-{stop - 1}" if stop - first > 1 else str(first)
            layers += " + embeddings" * one["holds_embeddings"] + " + head" * one["holds_head"]
            room = size_text(one["room_bytes"], "unknown")
            place = f"{one['pipeline']}/{one['data']}/{one['tensor']}"
            rows.append((str(one["rank"]), one["device"], place, size_text(one["parameter_bytes"]), room, layers))
        headings = ("rank", "device", "stage/copy/part", "parameters", "available", "layers")
        lines += columns(headings, rows, right=(0, 3, 4))
        for one in plan["groups"]:
            ranks = ", ".join(map(str, one["ranks"]))
            lines += folded("  ", f"{one['axis']} of ranks {ranks}: {one['backend']} ({one['why']})", indent=4)
        for start, name in (("", "reasons"), ("unused: ", "left_out"), ("rejected: ", "rejected")):
            lines += [line for one in plan[name] for line in folded(f"  - {start}", one)]
    return [*lines, ""]


def _case_lines(report: Mapping[str, Any]) -> list[str]:
    checked = report["checked"]
    if report["broken"]:
        return [*folded("Check: ", report["broken"]), ""]
    if not checked:
        return []
    made = f"{checked['model_class']} of {size_text(checked['parameter_bytes'])} in float32"
    lines = folded("Check: ", f"{report['split']} of a tiny {made}, seeded test weights. {report['remark']}")
    for case in report["cases"]:
        whole = case["whole_bytes"]
        for one in case["ranks"]:
            share = f"{size_text(one['bytes'])} of {size_text(whole)} ({100 * one['bytes'] / max(1, whole):.0f} %)"
            facts = [f"holds {share}, {one['parameters']} parameters, {one['parts']} of them split"]
            for name in ("forward", "backward"):
                if one[name] or name == "forward":
                    calls = ", ".join(f"{count} {call}" for call, count in one[name].items()) or "no communication"
                    facts.append(f"{name}: {calls}")
            lines += folded(f"  rank {one['rank']} on {one['device']} ", "; ".join(facts), indent=4)
        examples = next((one["examples"] for one in case["ranks"] if one["examples"]), ())
        lines += [line for one in examples[:2] for line in folded("    for example ", one)]
        lines += ["", *_check_lines(case), ""]
    return lines


def _check_lines(case: Mapping[str, Any]) -> list[str]:
    rows: list[Sequence[str]] = []
    for one in case["checks"]:
        result, error = "passed" if one["passed"] else "FAILED", "" if one["error"] is None else f"{one['error']:.2e}"
        sign = "more than" if one["name"] == EFFECT else "at most"
        limit = "" if one["tolerance"] is None else f"{sign} {one['tolerance']:.0e}"
        rows.append((result, one["name"], error, limit, one["detail"] or CHECKS[one["name"]]))
    return columns(("", "check", "measured", "limit", ""), rows, right=(2,))


def _verdict(report: Mapping[str, Any]) -> str:
    if report["broken"]:
        return f"{report['split']} isn't proven: the ranks didn't finish"
    if report["passed"] is None and report["plan"]:
        return "the model fits one device: there is nothing to split, and no check ran"
    if report["passed"] is None:
        return "the model fits no mesh of these devices, and no check ran"
    names = [one["name"] for case in report["cases"] for one in case["checks"] if not one["passed"]]
    if names:
        return f"{report['split']} differs from one device: {', '.join(names)} failed"
    fits = " The real model was planned, too" if report["plan"] else " The real model doesn't fit these devices"
    if not report["plan"] and not report["figures"]:
        fits = " The size of the real model is unknown"
    return f"{report['split']} matches one device, and every rank contributes.{fits}."
