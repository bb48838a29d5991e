"""The topology of a recorded machine: its NUMA nodes and accelerators with their memory and links, as a drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwcompat.hardware.evidence.record import RunLine
from hwcompat.hardware.inventory_summary import SIMULATED
from hwcompat.hardware.plain_text import size_text
from hwcompat.hardware.values import decimal, table, tables, whole, words

from ..fact_labels import machine_facts

WIDTH = 360
_INDENT, _MARGIN, _GAP, _LINE, _BOX = 18, 14, 10, 16, 42
_CHARACTERS, _IN_A_ROW, _MOST_BOXES, _MOST_GROUPS = 44, 4, 16, 8


@dataclass(kw_only=True)
class Topology:
    """A drawing of `WIDTH` by `height`: frames (class, position and size), texts (anchor, position and text) and a
    path of links. `rows` say the same: part, memory and link."""

    height: int = 0
    frames: list[tuple[str, float, float, float, float]] = field(default_factory=list)
    texts: list[tuple[str, float, float, str]] = field(default_factory=list)
    links: str = ""
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def draw(self, head: Sequence[str], boxes: Sequence[tuple[str, str]], between: str, left: int) -> None:
        """Draw a frame with lines of text and rows of boxes, which `between` links if it isn't empty."""
        top, columns, more = self.height, min(_IN_A_ROW, len(boxes)) or 1, len(boxes) - _MOST_BOXES
        self._write([line for text in head for line in textwrap.wrap(text, _CHARACTERS)[:2]], left)
        begin = self.height = self.height + _GAP
        width = (WIDTH - left - 2 * _MARGIN + _GAP) / columns - _GAP
        for place, texts in enumerate(boxes[:_MOST_BOXES]):
            row, column = divmod(place, columns)
            x, y = left + _MARGIN + column * (width + _GAP), begin + row * (_BOX + 2 * _GAP)
            middle = round(x + width / 2, 1)
            self.frames.append(("box", round(x, 1), y, round(width, 1), _BOX))
            self.texts += [("middle", middle, y + 18, texts[0]), ("middle", middle, y + 18 + _LINE, texts[1])]
            if between:  # a line below each row, and one at the left that joins them
                self.links += f"M{middle} {y + _BOX}v{_GAP}H{left + _MARGIN / 2}V{begin + _BOX + _GAP}"
            self.height = y + _BOX + (2 * _GAP if between else _GAP)
        self._write(filter(None, (between, f"and {more} more" if more > 0 else "")), left)
        self.frames.append(("frame", left + 0.5, top + 0.5, WIDTH - left - 1, self.height + _GAP / 2 - top))
        self.height += 2 * _GAP

    def _write(self, lines: Iterable[str], left: int) -> None:
        for line in lines:
            self.height += _LINE
            self.texts.append(("start", left + _MARGIN, self.height + 2, line))


def topology(run: RunLine) -> Topology | None:
    """Return the drawing of a run's machine; None without an accelerator and a second NUMA node."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for one in tables(run.inventory.get("accelerators")):
        name = f"{words(one.get('model')) or 'unnamed'}{', simulated' if one.get(SIMULATED) else ''}"
        index, size = whole(one.get("index")), whole(one.get("memory_bytes"))
        memory = "unified" if size is None and one.get("memory_type") == "unified" else size_text(size)
        label = f"{words(one.get('device_type')).upper()}{'' if index is None else f' {index}'}"
        groups.setdefault((name, memory, *_links(one)), []).append(label)
    nodes = tables(table(run.inventory.get("cpu")).get("numa_nodes"))
    if not groups and len(nodes) < 2:
        return None
    facts, drawn = dict(machine_facts(run)), Topology()
    near = [(f"NUMA {whole(one.get('node'))}", size_text(whole(one.get("memory_bytes")))) for one in nodes]
    drawn.draw([facts["processor"], f"{facts['memory']} of memory"], near if len(near) > 1 else (), "", 0)
    drawn.rows = [(facts["processor"], facts["memory"], "–"), *((*one, "–") for one in near if len(near) > 1)]
    start = drawn.height - _GAP - _GAP // 2
    for (name, memory, to_host, between), labels in list(groups.items())[:_MOST_GROUPS]:
        among, title = (between, f"{len(labels)} × {name}") if len(labels) > 1 else ("", name)
        drawn.links += f"M{_INDENT / 2} {start}V{drawn.height + _LINE}H{_INDENT}"
        drawn.draw([title, to_host], [(label, memory) for label in labels], among, _INDENT)
        each = " each" if len(labels) > 1 else ""
        drawn.rows.append((title, memory + each, "; ".join(filter(None, (to_host, among)))))
    drawn.height -= _GAP // 2
    return drawn


def _links(device: Mapping[str, Any]) -> tuple[str, str]:
    """Return how a device is linked to the processor and to others of its kind, as texts; the latter may be empty."""
    bus, extra, generation = words(device.get("bus_type")), table(device.get("extra_info")), device.get("pcie_gen")
    width, rate = whole(extra.get("pcie_width")), decimal(device.get("interconnect_gbps"))
    lanes, speed = f" × {width}" if width else "", f", {rate:.3g} GB/s in each direction" if rate else ""
    pcie = f"PCIe {whole(generation)}.0{lanes}{speed}" if whole(generation) else ""
    to_host = "on the chip of the processor" if bus == "integrated" else pcie or "link to the processor unknown"
    own = decimal(extra.get("nvlink_gbps"))
    nvlink = f"NVLink{f', {own:.4g} GB/s per device' if own else ''}"
    return to_host, {"nvlink": nvlink, "infinity_fabric": "Infinity Fabric"}.get(bus, "")
