"""`--mesh SPLIT`: a model planned over several devices, and its split checked for real at tiny size."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import click

from generators.options import Options
from hardware.backends.factory import declarations_of
from hardware.basic_detection import inventory_here
from hardware.errors import BackendUnavailable, NothingMatched, OutputError, UsageError, echo
from hardware.evidence.writer import now
from hardware.front_door import note
from hardware.plain_text import json_text
from hardware.whole_file import write_whole
from hwcompat.plugins.placement.device import Device, Figure, accelerators_of, processor_ranks
from hwcompat.plugins.placement.mesh.asking import MeshSubject, batch_of, mesh_subject
from hwcompat.plugins.placement.mesh.axes import Split
from hwcompat.plugins.placement.mesh.case import MeshCase
from hwcompat.plugins.placement.mesh.check import check_mesh
from hwcompat.plugins.placement.mesh.communication import COLLECTIVES, STAGES_ONLY, why_not
from hwcompat.plugins.placement.mesh.launch import DEADLINE_S
from hwcompat.plugins.placement.mesh.plan import DoesntFit, MeshPlan, plan_mesh
from hwcompat.plugins.placement.mesh.result import MeshResult

from .mesh_text import mesh_text

if TYPE_CHECKING:
    from hardware.detection import HardwareInfo

SCHEMA_VERSION = 1
FILE = "mesh.json"
_MICROBATCHES = 2


def report_mesh(asked: Options, text: str) -> int:
    """Plan, check, print and keep; returns the exit code: 1 where a check failed or nothing fits.

    Raises `MeshRefused` where no such mesh can be, `BackendUnavailable` where a named device isn't here.
    """
    wanted = Split.parse(text)
    if len(asked.models) != 1:
        raise UsageError("--mesh is about one model", fix="For example: --model llama --mesh data=2,tensor=2")
    if asked.format_ not in ("table", "text", "json"):
        raise UsageError("--mesh gives text or json", fix="Leave --format out.")
    inventory = inventory_here()
    devices = devices_for(asked.devices, inventory, wanted)
    note("building the model without data to count its bytes: a few seconds")
    subject = mesh_subject(asked.models[0], asked.precision)
    plan, refused = _real_plan(subject, devices, wanted)
    split = wanted or (plan.mesh.split if plan else None)
    result, tiny = None, None
    if split is not None and split.size > 1:
        tiny = plan_mesh(devices, subject.tiny_figures, split)
        note(f"checking {split} with {split.size} processes: about ten seconds")
        result = run_check(subject, tiny, asked.timeout or DEADLINE_S)
    report = report_of(asked.models[0], subject, plan, refused, tiny, result)
    _keep(asked, report)
    click.echo(json_text(report) if asked.format_ == "json" else mesh_text(report), nl=asked.format_ == "json")
    return 0 if split is not None and (result is None or result.passed) else 1


def devices_for(names: Sequence[str], inventory: HardwareInfo, wanted: Split | None) -> tuple[Device, ...]:
    """The devices that `--device` means: accelerators of this machine, or ranks that share its processor.

    Raises `BackendUnavailable` where a named one isn't here, `UsageError` for one that no mesh takes.
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
            raise UsageError(f"{echo(name)} is no device for a mesh", fix=f"Targets that torch computes on: {known}.")
        if kind == "cpu":
            others = sum(1 for other in names if other.partition(":")[0] != "cpu")
            found += processor_ranks(inventory, max(1, size - others))
        elif declarations_of(kind).SIMULATED:
            unknown = Figure(reason="a device made in Python has none of its own")
            found.append(Device(name=kind, target=kind, vendor=kind, memory_total=unknown))
        else:
            own = [one for one in here if name in (one.selector, one.target)]
            if not own:
                raise BackendUnavailable(f"{echo(name)} isn't here", why="no driver lists such a device")
            found += own
    return tuple(found)


def _real_plan(subject: MeshSubject, devices: Sequence[Device], wanted: Split | None) -> tuple[MeshPlan | None, str]:
    """The plan at real size; without one, why. Raises `MeshRefused` where the split itself can't be."""
    if subject.real is None:
        if wanted is None:
            raise NothingMatched(f"no split can be chosen for {echo(subject.tiny.name)}", why=subject.no_real)
        return None, f"the real model's figures can't be had: {subject.no_real}"
    try:
        return plan_mesh(devices, subject.real, wanted), ""
    except DoesntFit as refusal:
        return None, f"{refusal.what}: {refusal.why}"


def run_check(subject: MeshSubject, plan: MeshPlan, deadline_s: float) -> MeshResult:
    """The tiny model split by its plan, each rank a process here."""
    split = plan.mesh.split
    microbatches = _MICROBATCHES if split.pipeline > 1 else 1
    case = MeshCase(
        name=f"{subject.tiny.name} {split}",
        model=0,
        split=split,
        stages=plan.stages,
        devices=tuple(one.selector for one in plan.mesh.devices),
        microbatches=microbatches,
    )
    inputs = subject.arrays(batch_of(split, microbatches))
    return check_mesh([(subject.tiny, inputs)], [case], deadline_s=deadline_s)


def report_of(
    name: str,
    subject: MeshSubject,
    plan: MeshPlan | None,
    refused: str,
    tiny: MeshPlan | None,
    result: MeshResult | None,
) -> dict[str, Any]:
    """As `hardware/schemas/mesh.json` describes it."""
    split = (tiny or plan).mesh.split if tiny or plan else None  # type: ignore[union-attr] # one of them is there
    cpu = tiny is not None and all(one.target == "cpu" for one in tiny.mesh.devices)
    return {
        "schema_version": SCHEMA_VERSION,
        "timestamp": now(),
        "model": name,
        "split": str(split) if split else "",
        "figures": subject.real.to_dict() if subject.real else None,
        "whose": subject.whose,
        "plan": plan.to_dict() if plan else None,
        "refused": refused,
        "checked": _checked(subject, tiny) if result is not None and tiny is not None else None,
        "cases": [one.to_dict() for one in result.cases] if result else [],
        "broken": result.broken if result else "",
        "passed": result.passed if result else None,
        "remark": f"{tiny.mesh.split.size} ranks on one CPU: proves the split, not speed" if cpu and tiny else "",
        "versions": _versions(),
    }


def _checked(subject: MeshSubject, tiny: MeshPlan) -> dict[str, Any]:
    return {
        "subject": "tiny",
        "model_class": subject.tiny.model_class,
        "config": dict(subject.tiny.config),
        "parameter_bytes": tiny.total_bytes,
        "precision": "float32",
        "plan": tiny.to_dict(),
    }


def _versions() -> Mapping[str, str]:
    found = {}
    for name in ("torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _keep(asked: Options, report: Mapping[str, Any]) -> None:
    """A split model is no cell's condition, so that this is no evidence: it lies beside the reports."""
    path = asked.report_dir / FILE
    try:
        os.makedirs(asked.report_dir, exist_ok=True)
        write_whole(path, json_text(report) + "\n")
    except OSError as error:
        raise OutputError(f"can't write {echo(str(path))}", why=error.strerror or str(error)) from error
    note(f"written: {path}")
