"""What a report's page shows of the machine of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hardware.evidence.record import RunLine

from .page import Facts

_GIB = 1024**3


def machine_facts(run: RunLine) -> Facts:
    """The machine of a run in a few words. Evidence may come from anywhere: what has another shape is left out."""
    inventory = run.inventory
    host, cpu, memory = (_mapping(inventory.get(name)) for name in ("host", "cpu", "memory"))
    system = " ".join(str(host[name]) for name in ("system", "release", "machine") if host.get(name))
    cores = f", {cpu['cores']} cores, {cpu['threads']} threads" if cpu.get("cores") and cpu.get("threads") else ""
    total = memory.get("total_bytes")
    devices = inventory.get("accelerators")
    listed = devices if isinstance(devices, list) else []
    accelerators = [_accelerator(_mapping(device)) for device in listed]
    facts = (
        ("machine", run.machine),
        ("system", system),
        ("processor", f"{cpu['model']}{cores}" if cpu.get("model") else ""),
        ("memory", f"{total / _GIB:.1f} GiB" if isinstance(total, int) else ""),
        ("accelerators", ", ".join(accelerators) if accelerators else "none" if "accelerators" in inventory else ""),
    )
    return tuple((label, text or "not recorded") for label, text in facts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _accelerator(device: Mapping[str, Any]) -> str:
    return f"{device.get('vendor') or ''} {device.get('model') or 'unnamed'}".strip()


def inventory_text(run: RunLine) -> str:
    """The whole inventory as it was recorded."""
    return json.dumps(run.inventory, indent=1, sort_keys=True, ensure_ascii=False, default=str)
