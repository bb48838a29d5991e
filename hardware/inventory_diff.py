"""The differences between two inventories, and the targets whose evidence expires because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .evidence.versions import ABSENT, expired_by, machine_versions
from .plain_text import columns, size_text

SCHEMA_VERSION = 1

Inventory = Mapping[str, Any]

Rows = Mapping[str, Mapping[str, Any]]

_SAME = 0.02
"""The total memory of one machine differs by this share between boots, because the kernel reserves some of it."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One value that differs; None on a side that lacks it. `expires` are the targets whose evidence expires
    because of it."""

    area: str
    name: str
    before: Any
    after: Any
    expires: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InventoryComparison:
    """All differences, in the order of an inventory."""

    differences: tuple[Difference, ...]

    @property
    def expires(self) -> tuple[str, ...]:
        """Return the targets whose evidence expires, each once."""
        return tuple(sorted({target for one in self.differences for target in one.expires}))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values in the shape of `schemas/comparison.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "expires": list(self.expires),
            "differences": [asdict(one) for one in self.differences],
        }


def compare_inventories(before: Inventory, after: Inventory) -> InventoryComparison:
    """Return the differences between the inventories `before` and `after`."""
    found = [
        one for area, (rows, names) in _AREAS.items() for one in _differences(area, rows(before), rows(after), names)
    ]
    return InventoryComparison(differences=(*found, *_versions(before, after)))


def comparison_text(comparison: InventoryComparison) -> str:
    """Return the comparison as a table of 80 columns that ends in a newline."""
    if not comparison.differences:
        return "No differences.\n"
    rows = [
        (
            one.area,
            one.name,
            f"{value_text(one.name, one.before)} -> {value_text(one.name, one.after)}" + _expiry(one),
        )
        for one in comparison.differences
    ]
    lines = columns(("area", "name", "before -> after"), rows)
    lines.append("")
    if comparison.expires:
        lines.append(f"Evidence expires for: {', '.join(comparison.expires)}. Run its suites again.")
    else:
        lines.append("No evidence expires because of these differences.")
    return "\n".join(lines) + "\n"


def _expiry(one: Difference) -> str:
    return f" (evidence expires: {', '.join(one.expires)})" if one.expires else ""


def value_text(name: str, value: Any) -> str:
    """Return a value of an inventory as text: sizes with a unit, lists with commas, a dash if there is none."""
    if value is None:
        return "-"
    if name.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _differences(area: str, before: Rows, after: Rows, names: tuple[str, ...]) -> Iterator[Difference]:
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield Difference(area=area, name=key, before=old and _name(old), after=new and _name(new))
            continue
        for name in names:
            then, now = old.get(name), new.get(name)
            if then != now and not (name == "total_bytes" and then and now and abs(now - then) <= _SAME * then):
                yield Difference(area=area, name=f"{key} {name}".strip(), before=then, after=now)


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("model") or row.get("state") or "present")


def _by_device(inventory: Inventory) -> Rows:
    """Return the accelerators by vendor and driver index, or by bus address without an index."""
    found = {}
    for place, one in enumerate(inventory["accelerators"]):
        number = one.get("index")
        if number is None:
            number = (one.get("extra_info") or {}).get("pci_address", f"on the bus, {place}")
        found[f"{one['vendor']} {number}"] = one
    return found


def _part(name: str) -> Callable[[Inventory], Rows]:
    """Return a function that returns one table of an inventory."""
    return lambda inventory: {"": inventory.get(name) or {}}


def _listed(name: str, key: str) -> Callable[[Inventory], Rows]:
    """Return a function that returns the tables of a list by the key that identifies each."""
    return lambda inventory: {str(one.get(key, place)): one for place, one in enumerate(inventory.get(name) or ())}


_DEVICE = (
    *("model", "device_type", "seen_by", "compute_capability", "memory_bytes", "memory_type", "bus_type"),
    *("pcie_gen", "bandwidth_gbps", "interconnect_gbps", "driver_version", "firmware_version", "simulated"),
)
_CPU = ("vendor", "model", "architecture", "sockets", "cores", "threads", "instruction_sets")
_MEMORY = (
    *("total_bytes", "cgroup_limit_bytes", "swap_total_bytes", "persistent_bytes", "kind", "speed_mts", "channels"),
)
_AREAS: dict[str, tuple[Callable[[Inventory], Rows], tuple[str, ...]]] = {
    "host": (_part("host"), ("system", "release", "machine")),
    "cpu": (_part("cpu"), _CPU),
    "memory": (_part("memory"), _MEMORY),
    "vendor": (_listed("vendors", "vendor"), ("hardware", "driver", "library", "state")),
    "device": (_by_device, _DEVICE),
    "storage": (_listed("storage", "device_path"), ("model", "firmware", "capacity_bytes", "filesystem")),
    "torch": (_part("torch"), ("version", "cuda", "hip", "xpu")),
    "target": (_listed("targets", "target"), ("expected", "memory_bytes")),
}
"""What is compared: the tables of each area, and their fields."""


def _versions(before: Inventory, after: Inventory) -> Iterator[Difference]:
    old, new = _versions_in(before), _versions_in(after)
    for name in sorted({*old, *new}):
        then, now = old.get(name, ABSENT), new.get(name, ABSENT)
        if then != now:
            yield Difference(area="version", name=name, before=then, after=now, expires=expired_by(name))


def _versions_in(inventory: Inventory) -> dict[str, str]:
    host = inventory["host"]
    torch = inventory.get("torch") or {}
    return machine_versions(
        inventory["packages"],
        [
            (str(one["vendor"]), one.get("driver_version"), one.get("firmware_version"))
            for one in inventory["accelerators"]
        ],
        builds={name: torch.get(name) for name in ("cuda", "hip", "xpu")},
        python=str(host.get("python_version", "")),
        macos=str(host.get("release", "")) if host.get("system") == "Darwin" else None,
    )
