"""Print docs/measured/inventory.md: the output of `hwcompat devices list` for this machine and for recorded machines.

`python -m benchmarks.inventory_pages > docs/measured/inventory.md`
"""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from hardware.detection import HardwareInfo, detect
from hardware.inventory_text import list_text
from hardware.recording import ReplayedMachine

FIXTURES = Path(__file__).parents[1] / "test" / "fixtures"
MACHINES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_ALWAYS = ("CPU", "Memory", "Targets")
_DEVICES_SHOWN = 2
_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Return the sections of a list by title."""
    found = re.split(r"(?m)^(?=[^\n]+\n-{3,}\n)", text)
    return {part.split("\n", 1)[0]: part.rstrip() for part in found if part.strip()}


def shortened(section: str) -> str:
    """Return a section with its first two devices only."""
    head, *devices = re.split(r"(?m)^(?=  \[\d+\]:)", section)
    left = len(devices) - _DEVICES_SHOWN
    return "".join([head, *devices[:_DEVICES_SHOWN]]).rstrip() + (f"\n  … {left} more" if left > 0 else "")


def varying_sections(inventory: HardwareInfo) -> str:
    """Return the sections that differ from machine to machine."""
    vendors = [facts.vendor for facts in inventory.vendors if facts.hardware == "present"]
    parts = sections(list_text(inventory, everything=True))
    return "\n\n".join(shortened(part) for title, part in parts.items() if title in (*_ALWAYS, *vendors))


def main() -> None:
    here = list_text(detect(), everything=True).rstrip()
    expected = len(re.findall(r"(?m)^  [\w:-]+ +yes  ", here))
    date = datetime.now(UTC).date()
    print(_HEAD.format(date=date, shown=_DEVICES_SHOWN, count=len(MACHINES), expected=expected))
    print(f"## This machine\n\n```\n{here}\n```\n")
    for place, title in MACHINES.items():
        shown = varying_sections(detect(ReplayedMachine(FIXTURES / place)))
        print(f"## {title}\n\n`hwcompat devices list --all --replay test/fixtures/{place}`\n\n```\n{shown}\n```\n")


if __name__ == "__main__":
    main()
