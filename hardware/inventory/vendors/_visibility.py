"""The devices that a variable such as `CUDA_VISIBLE_DEVICES` leaves visible to a program.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; ROCm documentation, "GPU isolation techniques";
oneAPI Level Zero specification, "Affinity Mask".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...machine import Machine
from .vendor import AcceleratorInfo

Names = Sequence[str]


def visible(text: str | None, devices: Sequence[Names], *, numbered: bool = True) -> tuple[bool | None, ...]:
    """Return for each device whether `text` leaves it visible; None if unknown.

    `devices` holds the identifiers of each, in the order of their numbers. Unless that order is `numbered`, the
    device of a number is unknown. The list ends at its first invalid entry.
    """
    if text is None:
        return (True,) * len(devices)
    chosen: set[int] = set()
    for entry in text.split(","):
        found = _find_entry(entry.strip(), devices)
        if found is None:
            break
        chosen.add(found)
    by_number = any(entry.strip().partition(".")[0].isdigit() for entry in text.split(","))
    if chosen and len(chosen) < len(devices) and by_number and not numbered:
        return (None,) * len(devices)
    return tuple(index in chosen for index in range(len(devices)))


def _find_entry(entry: str, devices: Sequence[Names]) -> int | None:
    # `0.1` is the second tile of the first device in Level Zero.
    first = entry.partition(".")[0]
    if first.isascii() and first.isdigit():
        return int(first) if len(first) < 6 and int(first) < len(devices) else None
    if len(entry) < len("GPU-0"):
        return None
    starts = [
        index for index, names in enumerate(devices) if any(name.lower().startswith(entry.lower()) for name in names)
    ]
    return starts[0] if len(starts) == 1 else None


def with_visibility(
    devices: tuple[AcceleratorInfo, ...],
    machine: Machine,
    variables: Sequence[str],
    names: Sequence[Names],
    *,
    numbered: bool = True,
) -> tuple[AcceleratorInfo, ...]:
    """Return the devices, with `hidden_by` for those that a variable hides from frameworks. Each variable counts
    the devices that the previous ones left visible."""
    left = list(range(len(devices)))
    notes: dict[int, dict[str, str]] = {}
    for variable in variables:
        value = machine.variable(variable)
        if value is None:
            continue
        seen = visible(value, [names[index] for index in left], numbered=numbered)
        for index, is_left in zip(left, seen, strict=True):
            if is_left is None:
                notes[index] = {"maybe_hidden_by": f"{variable}={value} (the order of the numbers is unknown)"}
            elif not is_left:
                notes[index] = {"hidden_by": f"{variable}={value}"}
        left = [index for index, is_left in zip(left, seen, strict=True) if is_left is not False]
    return tuple(
        replace(device, extra_info={**device.extra_info, **notes[index]}) if index in notes else device
        for index, device in enumerate(devices)
    )
