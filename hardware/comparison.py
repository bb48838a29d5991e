"""What differs between two inventories, and which differences make evidence from the one worthless on the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import BrokenInput, echo
from .evidence.versions import ABSENT, expired_by, machine_versions
from .plain_text import columns, size_text
from .untrusted import read_json, reason_of

SCHEMA_VERSION = 1

_LARGEST = 64 * 1024 * 1024

Inventory = Mapping[str, Any]

_CPU = ("vendor", "model", "architecture", "sockets", "cores", "threads", "instruction_sets")
_DEVICE = (
    *("model", "device_type", "seen_by", "compute_capability", "memory_bytes", "memory_type", "bus_type"),
    *("pcie_gen", "bandwidth_gbps", "driver_version", "firmware_version", "simulated"),
)
_VENDOR = ("hardware", "driver", "library", "state")
_TORCH = ("version", "cuda", "hip", "xpu")
_SAME = 0.02
"""Memory in all differs by this share between boots of one machine: what the kernel keeps for itself."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One value that isn't the same. `None` where one side hasn't got it. `expires` are the targets whose evidence
    it makes worthless."""

    area: str
    name: str
    before: Any
    after: Any
    expires: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All differences, in the order in which an inventory is read."""

    differences: tuple[Difference, ...]

    @property
    def expires(self) -> tuple[str, ...]:
        """The targets whose evidence expires, each once."""
        return tuple(sorted({target for one in self.differences for target in one.expires}))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, in the shape of `schemas/comparison.json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "expires": list(self.expires),
            "differences": [asdict(one) for one in self.differences],
        }


def load_inventory(path: Path) -> Inventory:
    """An inventory that `list --format json` wrote. Raises `BrokenInput` for anything else."""
    fix = "Write one with: python -m hardware list --format json --output FILE"
    try:
        data = read_json(path, longest=_LARGEST)
    except OSError as error:
        raise BrokenInput(f"can't read {echo(str(path))}", why=reason_of(error), fix=fix) from error
    except ValueError as error:
        raise BrokenInput(f"{echo(str(path))} is no JSON", why=reason_of(error), fix=fix) from error
    if wrong := inventory_problem(data):
        raise BrokenInput(f"{echo(str(path))} is no inventory", why=wrong, fix=fix)
    return data  # type: ignore[no-any-return] # checked above


def inventory_problem(data: object) -> str:
    """Why `data` is no inventory that can be compared; empty where it is one."""
    kinds = {"host": dict, "cpu": dict, "memory": dict, "accelerators": list, "vendors": list, "packages": dict}
    if not isinstance(data, dict):
        return f"it lacks {', '.join(kinds)}"
    wrong = [name for name, kind in kinds.items() if not isinstance(data.get(name), kind)]
    if wrong:
        return f"it lacks {', '.join(wrong)}"
    devices = [*data["accelerators"], *data["vendors"]]
    if not all(isinstance(one, dict) and "vendor" in one for one in devices):
        return "it lacks vendors of devices"
    return next((f"its {name} can't be what a machine has" for name, fine in _shapes(data) if not fine), "")


def _shapes(data: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The parts that are looked into, and whether each has the shape in which an inventory is written."""
    sizes = (data["memory"].get("total_bytes"), data["memory"].get("available_bytes"))
    yield "memory", all(one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in sizes)
    yield "packages", _are(data["packages"].values(), str)
    yield "torch", isinstance(data.get("torch") or {}, dict) and _are((data.get("torch") or {}).values(), str)
    for name in ("targets", "storage"):
        rows = data.get(name) or []
        yield name, isinstance(rows, list) and all(isinstance(one, dict) for one in rows)
    for one in data["accelerators"]:
        versions = (one.get("driver_version"), one.get("firmware_version"))
        yield "accelerators", isinstance(one.get("extra_info") or {}, dict) and _are(versions, str)


def _are(values: Iterable[Any], kind: type) -> bool:
    return all(one is None or isinstance(one, kind) for one in values)


def compare_inventories(before: Inventory, after: Inventory) -> Comparison:
    """What differs `after` from `before`."""
    return Comparison(
        differences=(
            *_fields("host", before["host"], after["host"], ("system", "release", "machine")),
            *_fields("cpu", before["cpu"], after["cpu"], _CPU),
            *_memory(before["memory"], after["memory"]),
            *_rows("vendor", _by_vendor(before), _by_vendor(after), _VENDOR),
            *_rows("device", _by_device(before), _by_device(after), _DEVICE),
            *_rows(
                "storage", _by_path(before), _by_path(after), ("model", "firmware", "capacity_bytes", "filesystem")
            ),
            *_fields("torch", before.get("torch") or {}, after.get("torch") or {}, _TORCH),
            *_versions(before, after),
            *_rows("target", _targets(before), _targets(after), ("expected", "memory_bytes")),
        )
    )


def comparison_text(comparison: Comparison) -> str:
    """The comparison as a table of 80 columns; it ends in a newline."""
    if not comparison.differences:
        return "Nothing differs.\n"
    rows = [
        (
            one.area,
            one.name,
            f"{value_text(one.name, one.before)} -> {value_text(one.name, one.after)}" + _expiry(one),
        )
        for one in comparison.differences
    ]
    lines = columns(("area", "what", "before -> after"), rows)
    lines.append("")
    if comparison.expires:
        lines.append(f"Evidence expires for: {', '.join(comparison.expires)}. Run its suites again.")
    else:
        lines.append("No evidence expires by what differs.")
    return "\n".join(lines) + "\n"


def _expiry(one: Difference) -> str:
    return f" (evidence expires: {', '.join(one.expires)})" if one.expires else ""


def value_text(name: str, value: Any) -> str:
    """A value of an inventory as text: sizes with a unit, lists with commas, a dash where there is none."""
    if value is None:
        return "-"
    if name.endswith("_bytes") and isinstance(value, int):
        return size_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _fields(
    area: str, before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, ...], of: str = ""
) -> Iterator[Difference]:
    for name in names:
        if before.get(name) != after.get(name):
            label = f"{of} {name}".strip()
            yield Difference(area=area, name=label, before=before.get(name), after=after.get(name))


def _memory(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    old, new = before.get("total_bytes"), after.get("total_bytes")
    if not (old and new and abs(new - old) <= _SAME * old):
        yield from _fields("memory", before, after, ("total_bytes",))
    names = ("cgroup_limit_bytes", "swap_total_bytes", "persistent_bytes", "kind", "speed_mts", "channels")
    yield from _fields("memory", before, after, names)


def _rows(
    area: str,
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    names: tuple[str, ...],
) -> Iterator[Difference]:
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield Difference(area=area, name=key, before=old and _name(old), after=new and _name(new))
        else:
            yield from _fields(area, old, new, names, of=key)


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("model") or row.get("state") or "there")


def _by_vendor(inventory: Inventory) -> dict[str, Mapping[str, Any]]:
    return {str(one["vendor"]): one for one in inventory["vendors"]}


def _by_device(inventory: Inventory) -> dict[str, Mapping[str, Any]]:
    """By vendor and the driver's number, or the place on the bus where no driver numbers it."""
    found = {}
    for place, one in enumerate(inventory["accelerators"]):
        number = one.get("index")
        if number is None:
            number = (one.get("extra_info") or {}).get("pci_address", f"on the bus, {place}")
        found[f"{one['vendor']} {number}"] = one
    return found


def _by_path(inventory: Inventory) -> dict[str, Mapping[str, Any]]:
    rows = [one for one in inventory.get("storage") or () if isinstance(one, dict)]
    return {str(one.get("device_path", place)): one for place, one in enumerate(rows)}


def _targets(inventory: Inventory) -> dict[str, Mapping[str, Any]]:
    return {str(one["target"]): one for one in inventory.get("targets") or () if "target" in one}


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
