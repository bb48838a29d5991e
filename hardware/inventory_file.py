"""The inventory of another machine, as `python -m hardware list --format json` wrote it there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from .accelerators.base import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from .comparison import load_inventory
from .detection import HardwareInfo
from .errors import BrokenInput, echo
from .software import HostInfo, TorchBuild
from .system.cpu import CPUInfo
from .system.memory import MemoryInfo

_Made = TypeVar("_Made")

_STATES = {"hardware": HardwareState, "driver": DriverState, "library": LibraryState}


def read_inventory(path: Path) -> HardwareInfo:
    """What devices, memory, processor and software the file tells of; disks and libraries are left out.

    Raises `BrokenInput`: the file may come from anybody.
    """
    data = load_inventory(path)
    try:
        return HardwareInfo(
            host=_made(HostInfo, data["host"]),
            cpu=_processor(data["cpu"]),
            memory=_made(MemoryInfo, data["memory"]),
            accelerators=tuple(_made(AcceleratorInfo, one) for one in data["accelerators"]),
            vendors=tuple(
                _made(VendorFacts, one | {name: kind(one[name]) for name, kind in _STATES.items()})
                for one in data["vendors"]
            ),
            torch=_made(TorchBuild, data.get("torch") or {}),
            packages={str(name): value for name, value in data["packages"].items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenInput(
            f"{echo(str(path))} is no inventory",
            why=f"{type(error).__name__}: {error}"[:160],
            fix="Write one with: python -m hardware list --format json --output FILE",
        ) from error


def _processor(plain: Mapping[str, Any]) -> CPUInfo:
    """Without caches, clusters and sockets one by one."""
    names = plain.get("instruction_sets", ())
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise TypeError("instruction_sets is no list of names")
    left_out = ("socket_details", "caches", "clusters", "instruction_sets")
    return dataclasses.replace(_made(CPUInfo, plain, without=left_out), instruction_sets=tuple(names))


def _made(cls: type[_Made], plain: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> _Made:
    """A value of a class from the fields that it has, each of the type that its annotation begins with."""
    fields = {field.name: str(field.type) for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    given = {name: plain[name] for name in fields if name in plain and name not in without}
    for name, value in given.items():
        _check(name, value, fields[name])
    return cls(**given)


def _check(name: str, value: Any, annotation: str) -> None:
    if value is None and "None" in annotation:
        return
    first = annotation.partition(" |")[0].partition("[")[0]
    kinds: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "Mapping": (dict,),
        "tuple": (list,),
    }
    wanted = kinds.get(first)
    wrong = wanted is not None and not isinstance(value, wanted)
    if wrong or (isinstance(value, bool) and first in ("int", "float")):
        raise TypeError(f"{name} is {type(value).__name__}, not {annotation}")
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < 1e18:
        raise ValueError(f"{name} is {value!r}")
