"""Labels and texts of a cell, a run and a machine, in display order, for every format.

Evidence may have any source: values of another shape are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwcompat.hardware.evidence.record import CheckLine, RunLine
from hwcompat.hardware.evidence.versions import library_versions
from hwcompat.hardware.plain_text import size_text

from .cell_report import CellReport
from .reason_text import FAULT_WORDS, explained, texts

Facts = Sequence[tuple[str, str]]


def cell_facts(cell: CellReport) -> Facts:
    """Return why a cell's verdict is what it is, and what ran."""
    reasons, conditions = explained(cell.verdict)
    said = " ".join(texts(cell.verdict.reasons))
    substituted = dict.fromkeys(line.substitution_reason for line in cell.lines)
    device = f" ({cell.device})" if cell.device else ""
    return [
        *([("fault", FAULT_WORDS[cell.verdict.fault])] if cell.verdict.fault else []),
        *(("because", reason) for reason in reasons),
        *(("condition", condition) for condition in conditions),
        ("predicted before the run", cell.prediction or "not stored"),
        ("weights", cell.subjects or "–"),
        ("requested", cell.requested or cell.id.split("/")[2]),
        ("ran on", f"{cell.actual}{device}" if cell.actual else "nothing ran"),
        *(("substituted", text) for text in substituted if text and text not in said),
        ("from run", ", ".join(dict.fromkeys(line.run_id for line in cell.lines)) or "–"),
    ]


def error_text(line: CheckLine) -> str:
    """Return the error of a check and its tolerance; empty if none was measured."""
    if line.max_rel_error is None:
        return ""
    return f"{line.max_rel_error:.1e} / {'–' if line.tolerance is None else f'{line.tolerance:.0e}'}"


def run_facts(run: RunLine) -> Facts:
    """Return how a run was made: command, machine and versions."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(library_versions(run.versions).items()))
    return [
        ("started", f"{run.started_at} UTC"),
        ("command", run.command or "not recorded"),
        *machine_facts(run),
        ("versions", versions or "not recorded"),
        ("isolation", run.isolation or "not recorded"),
        ("suites at a time", str(run.jobs)),
        ("planned", f"{len(run.plan)} cells"),
        *([("resumes", ", ".join(run.resumes))] if run.resumes else []),
    ]


def machine_facts(run: RunLine) -> Facts:
    """Return a short description of a run's machine."""
    inventory = run.inventory
    host, cpu, memory = (_mapping(inventory.get(name)) for name in ("host", "cpu", "memory"))
    sockets = f", {cpu['sockets']} sockets" if cpu.get("sockets") not in (None, 1) else ""
    cores = f", {cpu['cores']} cores, {cpu['threads']} threads" if cpu.get("cores") and cpu.get("threads") else ""
    total, devices = memory.get("total_bytes"), inventory.get("accelerators")
    accelerators = [
        f"{one.get('vendor') or ''} {one.get('model') or 'unnamed'}".strip()
        for one in map(_mapping, devices if isinstance(devices, list) else [])
    ]
    facts = {
        "machine": run.machine,
        "system": " ".join(str(host[name]) for name in ("system", "release", "machine") if host.get(name)),
        "processor": f"{cpu['model']}{sockets}{cores}" if cpu.get("model") else "",
        "memory": size_text(total) if isinstance(total, int) else "",
        "accelerators": ", ".join(accelerators) or ("none" if "accelerators" in inventory else ""),
    }
    return [(label, text or "not recorded") for label, text in facts.items()]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
