"""Values of accelerator tools; None for values that a device can't have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...machine import SourceReading
from ...values import data_file, decimal, whole

Extra = dict[str, str | int | float | bool]


_MOST = 2.0**62
_LARGEST_SIZE = 2**50
_MOST_DEVICES = 1024
_TABLE = Path(__file__).with_name("throttle_reasons.toml")


def number(value: Any, *, per: float = 1, least: float = -_MOST, most: float = _MOST) -> float | None:
    """Return a number of drivers and tools (`12`, `"12.5 W"`), divided by `per`; None for anything else, and
    outside `least` to `most`."""
    if isinstance(value, str):
        value = next(iter(value.split()), None)
    found = decimal(value, least=-_MOST, most=_MOST)
    return None if found is None or not least <= found / per <= most else found / per


def positive(value: Any, *, per: float = 1) -> float | None:
    """Return a number above 0."""
    return number(value, per=per, least=0) or None


def watts(value: Any, *, per: float = 1) -> float | None:
    """Return a power in W that a device can draw: at most that of a rack."""
    return number(value, per=per, least=0, most=100_000)


def percent(value: Any) -> float | None:
    """Return a number from 0 to 100."""
    return number(value, least=0, most=100)


def celsius(value: Any, *, per: float = 1) -> float | None:
    """Return a temperature in °C that a chip can have."""
    return number(value, per=per, least=-50, most=200)


def size(value: Any, unit: int = 1) -> int | None:
    """Return a size in bytes above 0 and below a petabyte."""
    found = number(value)
    return int(found * unit) if found is not None and 0 < found * unit < _LARGEST_SIZE else None


def share(total: int | None, used: int | None) -> dict[str, int] | None:
    """Return `total`, `used` and `free`, if both are known and consistent."""
    if total is None or used is None or not 0 <= used <= total:
        return None
    return {"total": total, "used": used, "free": total - used}


def rates(compute: float | None, memory: float | None, reason: str) -> SourceReading[dict[str, float | None]]:
    """Return the utilization in percent, if at least one of both is known."""
    known = compute is not None or memory is not None
    return (
        SourceReading(value={"compute": compute, "memory": memory})
        if known
        else SourceReading(value=None, reason=reason)
    )


def counted(reading: SourceReading[Any]) -> SourceReading[int]:
    """Return a plausible number of devices."""
    if reading.value is None or (isinstance(reading.value, int) and 0 <= reading.value <= _MOST_DEVICES):
        return reading
    return SourceReading(value=None, reason=f"{str(reading.value)[:40]} is not a number of devices")


def given(value: Any, reason: str) -> SourceReading[Any]:
    """Return a reading of `value`, or the reason if it is None."""
    return SourceReading(value=None, reason=reason) if value is None else SourceReading(value=value)


def text(value: Any) -> str | None:
    """Return a text; None for placeholders of tools."""
    placeholders = ("", "n/a", "[n/a]", "none", "unknown", "not supported")
    return value.strip() if isinstance(value, str) and value.strip().lower() not in placeholders else None


def memory_kind(written: Any) -> str | None:
    """Return `HBM`, `GDDR` or `DDR` for names such as `HBM3`, `LPDDR5` and `AMDSMI_VRAM_TYPE_GDDR6`."""
    name = (text(written) or "").rpartition("_")[2].removeprefix("LP")
    return next((kind for kind in ("HBM", "GDDR", "DDR") if name.startswith(kind)), None)


def without(facts: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Return only the known values."""
    return {key: value for key, value in facts.items() if value is not None}


def pci_address(value: Any) -> str | None:
    """Return an address such as `0000:17:00.0` from any notation of tools."""
    words = (text(value) or "").lower().split(":")
    if len(words) == 2:
        words = ["0", *words]
    try:
        domain, bus = int(words[0], 16), int(words[1], 16)
        device, _, function = words[2].partition(".")
        return f"{domain & 0xFFFF:04x}:{bus:02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"
    except (ValueError, IndexError):
        return None


def generation(value: Any) -> int | None:
    """Return an existing generation of PCI Express."""
    return whole(value, least=1, most=9)


def generation_of(gigatransfers: Any) -> int | None:
    """Return the PCI Express generation of a link's speed in GT/s. Source: the PCI Express base specifications."""
    speed = number(gigatransfers)
    return None if speed is None else _GENERATIONS.get(round(speed, 1))


def link_gbps(gen: int | None, lanes: object) -> float | None:
    """Return the rate of a PCI Express link in one direction in 10^9 bytes per second: transfers x lanes, less the
    line code (8b/10b, from generation 3 128b/130b). Source: the PCI Express base specifications."""
    width = whole(lanes, least=1, most=32)
    speed = next((rate for rate, one in _GENERATIONS.items() if one == gen), None)
    if width is None or speed is None or gen is None or gen > 5:
        return None
    return round(speed * width / 8 * (0.8 if gen < 3 else 128 / 130), 2)


_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def gfx_named(written: Any) -> str | None:
    """Return the instruction set that a tool names, such as `gfx942`."""
    name = text(written)
    return name if name and name.startswith("gfx") and name != "gfx0" and len(name) < 12 else None


def throttling(source: str) -> dict[str, str]:
    """Return the reasons for throttling by the names of a source: see `throttle_reasons.toml`."""
    found: dict[str, str] = data_file(_TABLE)[source]
    return found


def bits_named(bits: int, source: str, *, silent: int = 0) -> tuple[str, ...]:
    """Return the names of set bits from `throttling`, each once, without those in `silent`. A bit without a name
    is shown as its number."""
    names = {int(bit, 16): name for bit, name in throttling(source).items()}
    unknown = bits & ~silent & ~sum(names)
    known = [name for bit, name in names.items() if bits & bit]
    return tuple(dict.fromkeys([*known, *([f"unknown_{unknown:#x}"] if unknown else [])]))
