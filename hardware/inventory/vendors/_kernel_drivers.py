"""Devices of a kernel driver in `/sys`, and whether this user may use them.

A device without a node in `/dev` wasn't passed to this container.
"""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from ...machine import Machine, SourceReading
from ._sources import Source
from ._tool_values import Extra, given, pci_address, text
from .vendor import AcceleratorInfo


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A GPU of AMD's KFD: the node, its instruction set, and the memory that compute programs can allocate."""

    node: int
    gfx: str | None
    memory_bytes: int | None
    memory_bits: int | None
    in_hive: bool


@dataclass(frozen=True, kw_only=True)
class Card:
    """A device of a driver: its folder in `/sys/class`, and its node, empty if the driver created none.

    `may_open` is None if the node wasn't passed to this container. An `integrated` GPU uses the host's memory.
    """

    folder: str
    address: str
    device_id: int
    driver: str
    node: str
    may_open: bool | None
    hwmon: str | None
    integrated: bool = False
    agent: Agent | None = None

    @property
    def path(self) -> str:
        """Return the device's own folder."""
        return f"{self.folder}/device"

    @property
    def denied(self) -> str:
        """Return why this user can't use it, or an empty text."""
        return f"{self.node} can't be opened by this user: join group render" if self.may_open is False else ""


def read_card(machine: Machine, folder: str, vendor_id: int, drivers: Collection[str]) -> Card | None:
    """Return the device of a folder such as `/sys/class/drm/card0`; None for another vendor or driver."""
    path = f"{folder}/device"
    address = pci_address((machine.link(path) or "").rpartition("/")[2])
    device_id = machine.number(f"{path}/device", 16)
    driver = (machine.link(f"{path}/driver") or "").rpartition("/")[2]
    if machine.number(f"{path}/vendor", 16) != vendor_id or device_id is None or address is None:
        return None
    if driver not in drivers:
        return None
    if folder.startswith("/sys/class/accel/"):
        node = f"/dev/accel/{folder.rpartition('/')[2]}"
    else:
        names = machine.names(f"{path}/drm") or ()
        node = next((f"/dev/dri/{name}" for name in names if name.startswith("renderD")), "")
    monitors = machine.names(f"{path}/hwmon") or ()
    return Card(
        folder=folder,
        address=address,
        device_id=device_id,
        driver=driver,
        node=node,
        may_open=machine.may_open(node) if node else None,
        hwmon=f"{path}/hwmon/{monitors[0]}" if monitors else None,
    )


def driver_version(machine: Machine, module: str) -> str:
    """Return the version of a kernel module, or that of the kernel for one of its own."""
    return text(machine.text(f"/sys/module/{module}/version")) or f"Linux {machine.host().release}"


class DriverFiles(Source):
    """The files of a driver. Devices are searched for once, because they don't change."""

    DEVICE_TYPE: ClassVar[str] = "gpu"

    def found(self, folder: str, pattern: str, vendor_id: int, drivers: Collection[str]) -> list[Card]:
        """Return the devices of some drivers in a folder such as `/sys/class/drm`, by address."""
        names = [name for name in self.machine.names(folder) or () if re.fullmatch(pattern, name)]
        cards = [read_card(self.machine, f"{folder}/{name}", vendor_id, drivers) for name in names]
        return sorted((card for card in cards if card is not None), key=lambda card: card.address)

    @abstractmethod
    def look(self) -> tuple[Card, ...]:
        """Return the driver's devices in the order in which programs number them."""

    @abstractmethod
    def described(self, index: int, card: Card) -> AcceleratorInfo:
        """Return the description of a device from its files."""

    @functools.cached_property
    def every(self) -> tuple[Card, ...]:
        """Return all devices of the driver."""
        return self.look()

    def cards(self) -> tuple[Card, ...]:
        """Return the devices whose node was passed to this container."""
        return tuple(card for card in self.every if card.may_open is not None)

    def at(self, address: object) -> Card | None:
        """Return the device at a bus address."""
        return next((card for card in self.every if card.address == address), None)

    def handle(self, index: int) -> Card:
        return self.cards()[index]

    def place_of(self, address: object) -> int | None:
        return next((place for place, card in enumerate(self.cards()) if card.address == address), None)

    def count(self) -> SourceReading[int]:
        every, listed = self.every, len(self.cards())
        if every and not listed:
            reason = f"{every[0].node or 'the device node'} doesn't exist: was it passed to this container?"
            return SourceReading(value=None, reason=reason)
        return given(listed or None, "the driver has no device")

    def describe(self, index: int) -> AcceleratorInfo:
        return self.described(index, self.handle(index))

    def extra(self, card: Card) -> Extra:
        """Return the bus address of a device, what it is, and what prevents its use."""
        extra: Extra = {"pci_address": card.address, "pci_device_id": f"{card.device_id:#06x}"}
        return extra | ({"reason": card.denied} if card.denied else {})
