"""Reading the inventory of another machine, written by `hwcompat devices list --format json`."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from .errors import BrokenInput, echo
from .inventory.hardware_info import HardwareInfo
from .inventory.system.main_memory import MemoryInfo
from .inventory.system.processor import CPUInfo
from .inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from .safe_read import read_json, reason_of, shape_problem
from .software import HostInfo, TorchBuild

_Made = TypeVar("_Made")

_SCHEMA = Path(__file__).parent / "schemas" / "inventory.json"
_LARGEST = 64 * 1024 * 1024
_NEEDED = ("host", "cpu", "memory", "accelerators", "vendors", "packages")
_FIX = "Write one with: hwcompat devices list --format json --output FILE"
_STATES = {"hardware": HardwareState, "driver": DriverState, "library": LibraryState}
_LEFT_OUT = frozenset({"socket_details", "caches", "clusters", "numa_nodes"})


def load_inventory(path: Path) -> Mapping[str, Any]:
    """Return an inventory as plain data. Raises `BrokenInput` for an invalid file; it is untrusted."""
    try:
        data = read_json(path, longest=_LARGEST)
    except OSError as error:
        raise BrokenInput(f"can't read {echo(str(path))}", why=reason_of(error), fix=_FIX) from error
    except ValueError as error:
        raise BrokenInput(f"{echo(str(path))} is no JSON", why=reason_of(error), fix=_FIX) from error
    if wrong := inventory_problem(data):
        raise BrokenInput(f"{echo(str(path))} is no inventory", why=wrong, fix=_FIX)
    return data  # type: ignore[no-any-return] # checked above


def inventory_problem(data: object) -> str:
    """Return why `data` is no inventory that can be compared, or an empty text."""
    return shape_problem(data, _shape())


@functools.cache
def _shape() -> dict[str, Any]:
    """Return the published schema, relaxed for the fields that other versions lack or add."""
    shape: dict[str, Any] = _lenient(json.loads(_SCHEMA.read_text(encoding="utf-8")))
    for name in ("accelerator", "vendor"):
        shape["$defs"][name]["required"] = ["vendor"]
    return {**shape, "required": list(_NEEDED)}


def _lenient(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lenient(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _lenient(value)
        for key, value in schema.items()
        if key != "required" and not (key == "additionalProperties" and value is False)
    }


def read_inventory(path: Path) -> HardwareInfo:
    """Return the devices, memory, processor and software of the file; disks, libraries, caches, clusters and
    sockets are left out. Raises `BrokenInput` for an invalid file."""
    data = load_inventory(path)
    try:
        return HardwareInfo(
            host=_made(HostInfo, data["host"]),
            cpu=_made(CPUInfo, data["cpu"]),
            memory=_made(MemoryInfo, data["memory"]),
            accelerators=tuple(_made(AcceleratorInfo, one) for one in data["accelerators"]),
            vendors=tuple(
                _made(VendorFacts, one | {name: kind(one[name]) for name, kind in _STATES.items()})
                for one in data["vendors"]
            ),
            torch=_made(TorchBuild, data.get("torch") or {}),
            packages=data["packages"],
        )
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"[:160]
        raise BrokenInput(f"{echo(str(path))} is no inventory", why=why, fix=_FIX) from error


def _made(cls: type[_Made], plain: Mapping[str, Any]) -> _Made:
    names = {field.name for field in dataclasses.fields(cls)} - _LEFT_OUT  # type: ignore[arg-type]
    given = {name: plain[name] for name in names if name in plain}
    return cls(**{name: tuple(one) if isinstance(one, list) else one for name, one in given.items()})
