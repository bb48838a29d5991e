"""Costs of devices per hour, from a TOML file of the user:

    currency = "USD"

    [per_hour]
    "NVIDIA H100*" = 2.5     # the name of the hardware
    "lab2/cpu" = 0.2         # or of the device, as in `hwcompat place`

The first pattern that matches counts, in any case; each device must have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from hwcompat.hardware.errors import BrokenInput, UsageError, echo
from hwcompat.hardware.safe_read import parsed_toml, read_text, reason_of

from .placement_device import Device

_LONGEST = 100_000


def read_prices(path: Path, devices: Sequence[Device]) -> tuple[dict[str, float], str]:
    """Return the cost of an hour by device, and the currency (empty if the file names none).

    Raises `BrokenInput` for a file without valid costs, `UsageError` for a usable device that no pattern matches.
    """
    try:
        plain = parsed_toml(read_text(path, longest=_LONGEST))
        patterns = dict(plain["per_hour"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokenInput(f"{echo(str(path))} isn't a file of costs", why=reason_of(error)) from error
    for pattern, cost in patterns.items():
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < 1e9:
            raise BrokenInput(
                f"{echo(str(path))} isn't a file of costs", why=f"{echo(pattern)} isn't a cost: {cost!r}"
            )
    found = {}
    for device in devices:
        names = (device.name.lower(), device.device_name.lower())
        fits = (cost for pattern, cost in patterns.items() if any(fnmatchcase(one, pattern.lower()) for one in names))
        cost = next(fits, None)
        if cost is None and not device.unusable:
            fix = f'Add a line to [per_hour], such as "{device.name}" = 1.0'
            raise UsageError(f"no cost for {device.name} ({device.device_name}) in {echo(str(path))}", fix=fix)
        found[device.name] = float(cost or 0.0)
    return found, str(plain.get("currency", ""))
