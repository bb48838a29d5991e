"""A pool's state as plain JSON values, all of one moment."""

from __future__ import annotations

from typing import Any

from .account import Account
from .incident import Incident
from .state import Entry, State

COUNTS = {
    "hits": "requests that found their resource",
    "misses": "requests that loaded it",
    "waits": "requests that waited for another's load",
    "loads": "loads that ended well",
    "failures": "loads that raised",
    "evictions": "resources that were released",
    "found_in_use": "times that a resource without a lease was still referred to, and stayed",
    "kept_in_part": "released resources of which somebody kept tensors",
    "waits_for_room": "times that a load waited for memory, or for its turn",
    "refused": "loads that found no room",
    "out_of_memory": "loads tried once more because memory ran out",
    "underestimated": "loads that took more than was expected",
    "nested_beyond_budget": "loads for another's constructor that had no room and couldn't wait",
}
"""What is counted, and what it means."""


def snapshot(state: State) -> dict[str, Any]:
    """Counts, devices, resources, loads under way and what went wrong. Not under the lock."""
    with state.lock:
        now = state.now()
        counts = {name: state.counts[name] for name in COUNTS}
        return {
            "requests": counts["hits"] + counts["misses"] + counts["waits"],
            **counts,
            "low_memory_mode": any(one.low_memory for one in state.accounts.values()),
            "memory_pressure": any(one.under_pressure for one in state.accounts.values()),
            "devices": {device: _device(account) for device, account in sorted(state.accounts.items())},
            "resources": [_resource(entry, now) for entry in sorted(_all(state), key=lambda one: one.order)],
            "loading": sorted(str(key) for key in state.loads),
            "incidents": [_incident(one) for one in state.incidents.values()],
        }


def _all(state: State) -> list[Entry]:
    return [*state.entries.values(), *state.outgoing]


def _device(account: Account) -> dict[str, Any]:
    own, machine = account.shares()
    total = account.total
    return {
        "budget_bytes": account.budget,
        "budget_from": account.budget_from,
        "held_bytes": account.held,
        "loading_bytes": account.reserved,
        "lingering_bytes": total - account.held - account.reserved,
        "peak_bytes": account.peak,
        "budget_used": own,
        "device_total_bytes": account.reading.total_bytes,
        "device_free_bytes": account.reading.free_bytes,
        "device_used": machine,
        "device_reason": account.reading.reason,
        "low_memory_mode": account.low_memory,
        "memory_pressure": account.under_pressure,
    }


def _resource(entry: Entry, now: float) -> dict[str, Any]:
    return {
        "kind": entry.key.kind,
        "type": entry.key.type,
        "id": entry.key.id,
        "device": entry.key.device,
        "precision": entry.key.precision,
        "bytes_by_device": dict(entry.size.bytes_by_device),
        "measured_by": entry.size.measured_by,
        "resident_change_bytes": entry.resident_change,
        "allocator_change_bytes": entry.allocator_change,
        "leases": sum(entry.leases.values()),
        "uses": entry.uses,
        "age_s": now - entry.loaded_at,
        "idle_s": now - entry.last_used,
        "load_s": entry.load_seconds,
        "dismissed": entry.dismissed,
    }


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "kind": incident.kind,
        "device": incident.device,
        "text": incident.text,
        "error": incident.error,
        "error_type": incident.error_type,
        "model": incident.model,
        "first_at": incident.first_at,
        "last_at": incident.last_at,
        "count": incident.count,
    }
