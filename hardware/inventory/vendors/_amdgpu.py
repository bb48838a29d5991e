"""AMD GPUs in the files of the kernel driver amdgpu in `/sys`, and the compute agents of KFD.

Sources: the kernel's `Documentation/gpu/amdgpu/driver-misc.rst` and `thermal.rst` for the files of a card;
`include/uapi/linux/kfd_sysfs.h` and `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` for the properties of nodes.
"""

from __future__ import annotations

from dataclasses import replace

from ...machine import Machine, SourceReading
from ._kernel_drivers import Agent, Card, DriverFiles, driver_version
from ._pci import AMD_VENDOR_ID, pci_name
from ._tool_values import (
    Extra,
    celsius,
    generation_of,
    given,
    number,
    percent,
    positive,
    rates,
    share,
    size,
    text,
    watts,
)
from .vendor import AcceleratorInfo

_DRM = "/sys/class/drm"
_NODES = "/sys/class/kfd/kfd/topology/nodes"
_WIDEST_GDDR_BITS = 512
_FIRST_GFX_WITHOUT_DDR = 10
_FRAMEBUFFER_HEAPS = (1, 2)


def agents(machine: Machine) -> dict[str, Agent]:
    """Return the GPUs of KFD by bus address, without its processors (nodes without a SIMD)."""
    found: dict[str, Agent] = {}
    for name in machine.names(_NODES) or ():
        node = _properties(machine.text(f"{_NODES}/{name}/properties"))
        if not name.isdigit() or not node.get("simd_count") or node.get("vendor_id", AMD_VENDOR_ID) != AMD_VENDOR_ID:
            continue
        at = node.get("location_id", 0)
        address = f"{node.get('domain', 0) & 0xFFFF:04x}:{at >> 8 & 0xFF:02x}:{at >> 3 & 0x1F:02x}.{at & 7:x}"
        if address in found:  # another partition of a known card
            continue
        banks = [
            _properties(machine.text(f"{_NODES}/{name}/mem_banks/{bank}/properties"))
            for bank in machine.names(f"{_NODES}/{name}/mem_banks") or ()
        ]
        own = [bank for bank in banks if bank.get("heap_type") in _FRAMEBUFFER_HEAPS]
        found[address] = Agent(
            node=int(name),
            gfx=gfx_name(node.get("gfx_target_version")),
            memory_bytes=size(sum(bank.get("size_in_bytes", 0) for bank in own)),
            memory_bits=max((bank.get("width", 0) for bank in own), default=0) or None,
            in_hive=bool(node.get("hive_id")),
        )
    return found


def gfx_name(version: int | None) -> str | None:
    """Return `gfx942` for 90402: the major version in decimal, minor and stepping as one hexadecimal digit each."""
    if not version or not 0 < version < 1_000_000:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def pool(machine: Machine, card: Card) -> str:
    """Return the memory pool of programs: `vram`, or `gtt` (the machine's) on an APU with a small carve-out.

    The size of the KFD bank decides (amdgpu_gmc.c, apu_prefer_gtt, since Linux 6.10); without KFD it is `vram`.
    """
    totals = {name: size(machine.text(f"{card.path}/mem_info_{name}_total")) for name in ("vram", "gtt")}
    bank = card.agent.memory_bytes if card.agent else None
    gtt = totals["gtt"]
    if not card.integrated or bank is None or gtt is None:
        return "vram"
    return "gtt" if abs(bank - gtt) < abs(bank - (totals["vram"] or 0)) else "vram"


def placed(machine: Machine, info: AcceleratorInfo, card: Card | None) -> AcceleratorInfo:
    """Return a library's description of a device, completed from the kernel's files: whether it is an APU, whose
    carve-out isn't the memory of programs, its KFD node, and whether it is in a hive."""
    if card is None:
        return info
    extra: Extra = {**info.extra_info}
    if card.agent is not None:
        extra.setdefault("kfd_node", card.agent.node)
    if card.denied:
        extra["reason"] = card.denied
    bus = "infinity_fabric" if card.agent and card.agent.in_hive else info.bus_type
    if not card.integrated:
        return replace(info, bus_type=bus, extra_info=extra)
    sizes = {name: size(machine.text(f"{card.path}/mem_info_{name}_total")) for name in ("vram", "gtt")}
    if sizes["vram"]:
        extra["carve_out_bytes"] = sizes["vram"]
    if sizes["gtt"]:
        extra["gtt_bytes"] = sizes["gtt"]
    which = sizes[pool(machine, card)]
    return replace(
        info,
        memory_bytes=which,
        memory_type="unified",
        bus_type="integrated",
        pcie_gen=None,
        bandwidth_gbps=None,
        extra_info=extra,
    )


def memory_type(agent: Agent | None) -> str | None:
    """Return the type by the width of the memory bus: a stack of HBM has 1,024 bits, a GDDR card at most 512."""
    if agent is None or agent.memory_bits is None:
        return None
    if agent.memory_bits > _WIDEST_GDDR_BITS:
        return "HBM"
    major = int(agent.gfx[3:-2]) if agent.gfx and agent.gfx[3:-2].isdigit() else 0
    return "GDDR" if major >= _FIRST_GFX_WITHOUT_DDR else None


class AmdgpuSource(DriverFiles):
    """The files of the driver amdgpu."""

    NAME = "sysfs"

    def look(self) -> tuple[Card, ...]:
        """Return the cards in the order of KFD nodes, and by address if KFD doesn't list them."""
        known = agents(self.machine)
        found = []
        for card in self.found(_DRM, r"card\d+", AMD_VENDOR_ID, ("amdgpu", "")):
            # amdgpu_pm.c: only an APU has the voltage of a north bridge.
            integrated = card.hwmon is not None and self.machine.text(f"{card.hwmon}/in1_label") == "vddnb"
            found.append(replace(card, integrated=integrated, agent=known.get(card.address)))
        return tuple(
            sorted(found, key=lambda card: (card.agent is None, card.agent.node if card.agent else 0, card.address))
        )

    def temperature(self, card: Card) -> SourceReading[float]:
        if card.hwmon is None:
            return SourceReading(value=None, reason="no sensor of the card found")
        sensors: dict[str, float] = {}
        for position, usual in ((1, "edge"), (2, "junction"), (3, "mem")):
            degrees = number(self.machine.text(f"{card.hwmon}/temp{position}_input"))
            if degrees is not None:
                sensors[self.machine.text(f"{card.hwmon}/temp{position}_label") or usual] = degrees
        found = next((sensors[name] for name in ("edge", "junction", "mem") if name in sensors), None)
        return given(celsius(found, per=1000), "no sensor of the card responds")

    def memory(self, card: Card) -> SourceReading[dict[str, int]]:
        which = pool(self.machine, card)
        total = size(self.machine.text(f"{card.path}/mem_info_{which}_total"))
        used = number(self.machine.text(f"{card.path}/mem_info_{which}_used"))
        return given(share(total, None if used is None else int(used)), "amdgpu doesn't report used memory")

    def utilization(self, card: Card) -> SourceReading[dict[str, float | None]]:
        compute, memory = (percent(self.machine.text(f"{card.path}/{name}_busy_percent")) for name in ("gpu", "mem"))
        return rates(compute, memory, "amdgpu doesn't report the load of this card")

    def power(self, card: Card) -> SourceReading[float]:
        if card.hwmon is None:
            return SourceReading(value=None, reason="no sensor of the card found")
        readings = (watts(self.machine.text(f"{card.hwmon}/power1_{name}"), per=1e6) for name in ("average", "input"))
        return given(next(filter(None, readings), None), "the card has no power sensor")

    def described(self, index: int, card: Card) -> AcceleratorInfo:
        read = self.machine.text
        cap = positive(read(f"{card.hwmon}/power1_cap"), per=1e6)
        extra = self.extra(card) | ({} if cap is None else {"power_limit_w": cap})
        vram = size(read(f"{card.path}/mem_info_vram_total"))
        if vram is None:
            extra["reason"] = "amdgpu doesn't report the memory of this card"
        return AcceleratorInfo(
            vendor="AMD",
            device_type="gpu",
            model=text(read(f"{card.path}/product_name"))
            or pci_name(self.machine, AMD_VENDOR_ID, card.device_id)
            or f"AMD device {card.device_id:#06x}",
            index=index,
            compute_capability=card.agent.gfx if card.agent else None,
            memory_bytes=vram,
            memory_type=memory_type(card.agent),
            bus_type="pcie",
            pcie_gen=generation_of(read(f"{card.path}/max_link_speed")),
            driver_version=driver_version(self.machine, "amdgpu")
            if self.machine.is_folder("/sys/module/amdgpu")
            else None,
            firmware_version=text(read(f"{card.path}/vbios_version")),
            extra_info=extra,
        )


def _properties(lines: str | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (lines or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if value.isascii() and value.isdigit() and len(value) < 21:
            found[name] = int(value)
    return found
