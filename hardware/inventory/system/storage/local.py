"""Disks of this machine: NVMe, SATA, SAS, USB, SD cards, eMMC, and the virtual disks of a hypervisor.

Linux shows them in sysfs and in udev's data, without root and without waking a disk.

Layout: the kernel's Documentation/ABI/{stable,testing}/sysfs-block, sysfs-class-nvme (in drivers/nvme), and
Documentation/driver-api/mmc/mmc-dev-attrs.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from ....machine import Machine
from ....values import data_file, first_number, pairs, text, whole
from ._disk_health import health_without_root, link_limit, read_smart
from .storage_device import SMART_NOT_ASKED, Mount, StorageBackend, StorageDeviceInfo, unique, with_reasons

_BLOCK = "/sys/block"
_SECTOR_BYTES = 512  # the unit of `size`, independent of the disk's sectors
_MOST_AT_ONCE = 8

_OTHER_THAN_DISKS = re.compile(
    r"(sr|fd|mtdblock|pmem|ram|loop|zram|md|dm-|zd|nullb|bcache)\d|mmcblk\d+(boot\d|rpmb|gp\d)"
)
"""Optical and floppy drives, raw flash, virtual devices, memory, and the small areas of an eMMC."""

_HIDDEN_PATH = re.compile(r"nvme\d+c\d+n\d+$")
"""One of several paths to a disk that is listed under its own name."""

_NETWORK_PATHS = ("/session", "/rport-", "/nvme-fabrics/")
_NETWORK_DISKS = re.compile(r"(nbd|rbd|drbd)\d")
_RUNTIME_FOLDERS = ("/etc/", "/dev/", "/proc/", "/sys/", "/run/")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One entry of /sys/block: its name, the target of its link, and its udev properties."""

    name: str
    link: str
    udev: Mapping[str, str]

    @property
    def is_network(self) -> bool:
        """Return whether the disk is beyond a network."""
        return any(part in self.link for part in _NETWORK_PATHS) or bool(_NETWORK_DISKS.match(self.name))

    @property
    def sysfs(self) -> str:
        """Return its folder."""
        return f"{_BLOCK}/{self.name}"


class LocalStorage(StorageBackend):
    """Physical disks, each once: no partition, mapping, array, memory disk, loop device or synthesized container."""

    NAME = "local"

    def list_devices(self) -> tuple[StorageDeviceInfo, ...]:
        if system := self._programs():
            found: tuple[StorageDeviceInfo, ...] = system.disks(self.machine, self.mounts, smart=self.smart)
            return found
        return linux_disks(self.machine, self.mounts, network=False, smart=self.smart)

    def reason(self) -> str:
        if system := self._programs():
            return str(system.why_nothing(self.machine))
        return "" if self.machine.is_folder(_BLOCK) else f"{_BLOCK} can't be listed"

    def _programs(self) -> ModuleType | None:
        """Return the module for the programs of macOS or Windows; None on Linux."""
        if (system := self.machine.host().system) not in ("Darwin", "Windows"):
            return None
        from . import _macos_disks, _windows_disks

        return _macos_disks if system == "Darwin" else _windows_disks


def linux_disks(
    machine: Machine, mounts: tuple[Mount, ...], *, network: bool, smart: bool
) -> tuple[StorageDeviceInfo, ...]:
    """Return the disks of this machine, or those beyond a network, each once even with several paths."""
    blocks = [block for block in _blocks(machine) if block.is_network is network]
    blocks, paths = _without_multipath(machine, blocks)
    if not blocks:
        return ()
    if smart:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=_MOST_AT_ONCE) as pool:
            found = list(pool.map(lambda one: _described(machine, one, mounts, smart=True), blocks))
    else:
        found = [_described(machine, one, mounts, smart=False) for one in blocks]
    return tuple(
        replace(one, extra_info={**one.extra_info, "paths": paths[block.name]}) if block.name in paths else one
        for block, one in zip(blocks, found, strict=True)
    )


def _blocks(machine: Machine) -> Iterator[Block]:
    """Yield disks with a medium, without partitions, mappings, arrays and memory."""
    for name in machine.names(_BLOCK) or ():
        if _OTHER_THAN_DISKS.match(name) or _HIDDEN_PATH.match(name):
            continue
        link = machine.link(f"{_BLOCK}/{name}") or ""
        virtual = "/virtual/" in link and not re.search(r"/nvme-(subsystem|fabrics)/", link)
        if virtual and not _NETWORK_DISKS.match(name):
            continue
        if not whole(machine.text(f"{_BLOCK}/{name}/size"), least=1):
            continue  # a drive without a medium
        number = machine.text(f"{_BLOCK}/{name}/dev") or ""
        yield Block(name=name, link=link, udev=_udev(machine, number))


def _udev(machine: Machine, number: str) -> dict[str, str]:
    account = machine.text(f"/run/udev/data/b{number}") if re.fullmatch(r"\d+:\d+", number) else None
    return pairs((line[2:] for line in (account or "").splitlines() if line.startswith("E:")), "=")


def _without_multipath(machine: Machine, blocks: list[Block]) -> tuple[list[Block], dict[str, str]]:
    """Return the disks with those joined by a dm-multipath mapping as one, and the paths to each."""
    joined: dict[str, list[str]] = {}
    first: list[Block] = []
    for block in blocks:
        holders = machine.names(f"{block.sysfs}/holders") or ()
        mapping = next(
            (one for one in holders if (machine.text(f"{_BLOCK}/{one}/dm/uuid") or "").startswith("mpath-")),
            block.name,
        )
        if mapping not in joined:
            first.append(block)
        joined.setdefault(mapping, []).append(block.name)
    return first, {names[0]: ", ".join(names) for names in joined.values() if len(names) > 1}


def _described(machine: Machine, block: Block, mounts: tuple[Mount, ...], *, smart: bool) -> StorageDeviceInfo:
    bus, kind, why = _kind(machine, block)
    model, serial, firmware = _identity(machine, block)
    size = whole(machine.text(f"{block.sysfs}/size"), least=1, most=2**54)
    points, filesystem = _mounted(machine, block, mounts)
    health = health_without_root(machine, block.name, block.link)
    reasons = dict.fromkeys(("health_status", "temperature_celsius", "wear_level_percent", "power_on_hours"))
    unknown: dict[str, str] = dict.fromkeys(reasons, SMART_NOT_ASKED)
    if smart and not block.name.startswith("mmcblk") and bus != "virtual":
        disk = read_smart(machine, f"/dev/{block.name}")
        health, unknown = disk.over(health), dict.fromkeys(reasons, disk.untold or "smartctl doesn't report it")
        model, serial, firmware = disk.model or model, disk.serial or serial, disk.firmware or firmware
        kind = kind or (None if disk.rotates is None else "hdd" if disk.rotates else "ssd")
    elif block.name.startswith("mmcblk"):
        unknown = dict.fromkeys(reasons, "SD cards and eMMC have no SMART")
    elif bus == "virtual":
        unknown = dict.fromkeys(reasons, f"{why or 'a virtual disk'}: only its host knows")
    elsewhere = {} if filesystem else {"filesystem": "it isn't mounted, and udev knows no filesystem"}
    device = StorageDeviceInfo(
        device_path=f"/dev/{block.name}",
        model=model,
        serial=serial,
        firmware=firmware,
        device_type="network" if block.is_network else kind,
        bus_type="network" if block.is_network else bus,
        capacity_bytes=None if size is None else size * _SECTOR_BYTES,
        health_status=health.status,
        temperature_celsius=health.temperature_celsius,
        wear_level_percent=health.wear_percent,
        power_on_hours=health.power_on_hours,
        mount_points=points,
        filesystem=filesystem,
        extra_info={**link_limit(machine, block.name, block.link), **health.extra},
        reasons={"health_status": health.reason} if health.reason else {},
    )
    return with_reasons(device, unknown | elsewhere | ({"device_type": why} if why else {}))


def _identity(machine: Machine, block: Block) -> tuple[str | None, str | None, str | None]:
    """Return model, serial number and firmware. udev has the full name of a SATA disk, SCSI only 16 characters."""
    names = ("model", "serial", "firmware_rev" if block.name.startswith("nvme") else "rev")
    model, serial, firmware = (text(machine.text(f"{block.sysfs}/device/{name}")) for name in names)
    if block.name.startswith("mmcblk"):
        model, firmware = (text(machine.text(f"{block.sysfs}/device/{name}")) for name in ("name", "fwrev"))
    elif block.name.startswith(("sd", "vd")):
        vendor = text(machine.text(f"{block.sysfs}/device/vendor"))
        whole_name = _decoded(block.udev.get("ID_MODEL_ENC", "")) or block.udev.get("ID_MODEL", "").replace("_", " ")
        if vendor and not vendor.startswith("0x") and vendor != "ATA":
            model = f"{vendor} {model or ''}".strip()
        elif len(whole_name) > len(model or ""):
            model = whole_name
        serial = serial or text(machine.text(f"{block.sysfs}/serial")) or block.udev.get("ID_SERIAL_SHORT") or None
        firmware = block.udev.get("ID_REVISION") or firmware
    return model, serial, firmware


def _decoded(encoded: str) -> str:
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), encoded).strip()


def _kind(machine: Machine, block: Block) -> tuple[str | None, str | None, str]:
    """Return bus and device type, and why the type is missing or what kind of virtual disk it is."""
    vendor, model = (text(machine.text(f"{block.sysfs}/device/{name}")) or "" for name in ("vendor", "model"))
    shown = next(
        (one for one in _virtual_disks() if vendor.startswith(one["vendor"]) and model.startswith(one["model"])), None
    )
    if shown is not None and shown["kind"] == "hypervisor":
        return "virtual", "virtual", shown["what"]
    if re.search(r"/virtio\d+/|/vbd-|/VMBUS:", block.link) or re.match(r"(vd|xvd)[a-z]", block.name):
        return "virtual", "virtual", "a virtual disk"
    if block.name.startswith("nvme"):
        return ("pcie" if "/pci" in block.link or "nvme-subsystem" in block.link else None), "nvme_ssd", ""
    if block.name.startswith("mmcblk"):
        return "mmc", "flash", ""
    rotates = {"0": False, "1": True}.get(machine.text(f"{block.sysfs}/queue/rotational") or "")
    if "/usb" in block.link:
        return "usb", *_usb_kind(block, rotates)
    is_ata = vendor == "ATA" or re.search(r"/ata\d+/", block.link)
    bus = "sata" if is_ata else "sas" if re.search(r"/end_device-|/sas_", block.link) else None
    if shown is not None:
        return bus, None, f"{shown['what']}: which disks are behind it is unknown"
    if rotates is None:
        return bus, None, "the kernel doesn't report whether it rotates"
    return bus, "hdd" if rotates else "sata_ssd" if bus == "sata" else "ssd", ""


def _usb_kind(block: Block, rotates: bool | None) -> tuple[str | None, str]:
    """Return the type of a USB disk. The kernel reports it as rotating by default; udev may know better."""
    speed = first_number(block.udev.get("ID_ATA_ROTATION_RATE_RPM"))
    if speed is not None:
        return ("hdd" if speed else "ssd"), ""
    return ("ssd", "") if rotates is False else (None, "a USB bridge doesn't report the disk behind it")


def _virtual_disks() -> list[dict[str, str]]:
    found: list[dict[str, str]] = data_file(Path(__file__).with_name("virtual_disks.toml"))["disk"]
    return found


def _mounted(machine: Machine, block: Block, mounts: tuple[Mount, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return where this disk, its partitions and the devices made of them are mounted, and their filesystems."""
    numbers, sources, pools = _made_of_it(machine, block)
    here = [
        mount
        for mount in mounts
        if mount.device in numbers
        or mount.source in sources
        or (mount.filesystem == "zfs" and mount.source.partition("/")[0] in pools)
    ]
    rooted = [mount for mount in here if mount.root == "/" or mount.filesystem in ("btrfs", "zfs")]
    # A container sees folders of its host's disks; mounts of single files by its runtime are ignored.
    chosen = rooted or [mount for mount in here if not mount.point.startswith(_RUNTIME_FOLDERS)]
    known = unique(mount.filesystem for mount in chosen)
    if not known:
        known = unique(filter(None, (_udev(machine, number).get("ID_FS_TYPE", "") for number in sorted(numbers))))
    return unique(mount.point for mount in chosen), " + ".join(known) or None


def _made_of_it(machine: Machine, block: Block) -> tuple[set[str], set[str], set[str]]:
    """Return device numbers, device files and names of ZFS pools of a disk, its partitions, and all that use them."""
    parts = [name for name in machine.names(block.sysfs) or () if name.startswith(block.name)]
    waiting = [block.sysfs, *(f"{block.sysfs}/{name}" for name in parts)]
    numbers: set[str] = set()
    sources: set[str] = set()
    pools: set[str] = set()
    seen: set[str] = set()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        number = machine.text(f"{folder}/dev")
        if number:
            numbers.add(number)
        sources.add(f"/dev/{folder.rpartition('/')[2]}")
        mapped = machine.text(f"{folder}/dm/name") if "/dm-" in folder else None
        if mapped:
            sources.add(f"/dev/mapper/{mapped}")
        properties = block.udev if folder == block.sysfs else _udev(machine, number or "")
        if properties.get("ID_FS_TYPE") == "zfs_member" and properties.get("ID_FS_LABEL"):
            pools.add(properties["ID_FS_LABEL"])
        waiting += [f"{_BLOCK}/{holder}" for holder in machine.names(f"{folder}/holders") or ()]
    return numbers, sources, pools
