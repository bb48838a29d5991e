"""Storage of recorded machines: each disk once, what it is, where it is mounted, how it is, and why something isn't
known; and nothing of a serial number, a server or a bucket in what is printed."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from recorded_machines import FIXTURES, XEON, computer, disks

from hardware.__main__ import main
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.inventory.system.storage import StorageDeviceInfo, get_storage_backend, local, read_storage
from hardware.inventory.system.storage._disk_health import health_without_root, link_limit
from hardware.inventory.system.storage.network import NetworkStorage, remote
from hardware.inventory.system.storage.storage_device import Mount, read_mounts
from hardware.inventory.system.storage.storage_registry import KINDS
from hardware.machine import LiveMachine, Machine, SourceReading
from hardware.recording import ReplayedMachine

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "hardware" / "schemas" / "inventory.json").read_text())
MACHINES = sorted(path.parent for path in (FIXTURES / "machines").glob("*/machine.json"))


@pytest.mark.parametrize("folder", MACHINES, ids=lambda path: path.name)
def test_the_inventory_of_every_recorded_machine_has_the_published_shape(folder: Path) -> None:
    for smart in (False, True):
        found = detect(ReplayedMachine(folder), smart=smart)
        jsonschema.Draft202012Validator(SCHEMA).validate(found.to_dict())
        assert found.storage
        for one in found.storage:
            unexplained = {
                name
                for name in StorageDeviceInfo.__dataclass_fields__
                if getattr(one, name) is None and not one.reasons.get(name)
            }
            assert not unexplained, one.device_path


@pytest.mark.parametrize("folder", MACHINES, ids=lambda path: path.name)
def test_a_recording_says_where_it_comes_from_and_holds_no_serial(folder: Path) -> None:
    assert (folder / "SOURCE.md").read_text().strip()
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "SOURCE.md":
            assert "S466NX0M" not in path.read_text()


def test_each_disk_of_a_server_is_listed_once() -> None:
    local = get_storage_backend("local", computer(XEON)).list_devices()
    kinds = {one.device_path: (one.device_type, one.bus_type) for one in local}
    assert kinds == {
        "/dev/nvme0n1": ("nvme_ssd", "pcie"),
        "/dev/nvme1n1": ("nvme_ssd", "pcie"),
        "/dev/sda": ("sata_ssd", "sata"),
        "/dev/sdb": ("sata_ssd", "sata"),
        "/dev/sdc": ("hdd", "sata"),
        "/dev/sdd": ("hdd", "sas"),
        "/dev/sdi": (None, "usb"),
    }
    assert {one.device_path for one in local}.isdisjoint(f"/dev/{name}" for name in ("dm-0", "md0", "loop0", "zram0"))


def test_what_a_driver_makes_in_memory_is_no_disk_whatever_its_name() -> None:
    class WithAnother(ReplayedMachine):
        def names(self, folder: str) -> tuple[str, ...] | None:
            found = super().names(folder)
            return ("scratch0", *(found or ())) if folder == "/sys/block" else found

        def link(self, path: str) -> str | None:
            return "../devices/virtual/block/scratch0" if path.endswith("/scratch0") else super().link(path)

        def text(self, path: str) -> str | None:
            return "2048" if path == "/sys/block/scratch0/size" else super().text(path)

    found = read_storage(WithAnother(computer(XEON).folder)).devices
    assert len(found) > 10
    assert "/dev/scratch0" not in {one.device_path for one in found}


def test_what_lies_on_a_mapping_or_an_array_is_mounted_of_its_disks() -> None:
    found = disks(XEON)
    assert found["/dev/nvme0n1"].mount_points == ("/", "/boot", "/boot/efi", "/data")
    assert found["/dev/nvme0n1"].filesystem == "ext4 + vfat + xfs"
    assert found["/dev/sda"].mount_points == found["/dev/sdb"].mount_points == ("/var/lib/docker",)
    assert (found["/dev/nvme1n1"].mount_points, found["/dev/nvme1n1"].filesystem) == ((), None)
    assert found["/dev/sdi"].filesystem == "vfat"  # not mounted: udev looked


def test_the_name_of_a_sata_disk_is_whole() -> None:
    disk = disks(XEON)["/dev/sdc"]
    assert (disk.model, disk.firmware) == ("HGST HUS726040ALE614", "APGNW907")
    assert disk.capacity_bytes == 4000787030016
    assert disk.capacity_gb == 4000.79


def test_storage_of_a_network_is_told_by_kind() -> None:
    found = read_storage(computer(XEON)).devices
    remote_ones = {one.mount_points: one for one in found if one.bus_type == "network"}
    assert remote_ones["/mnt/nfs/datasets", "/imagenet"].filesystem == "nfs4"
    assert remote_ones["/mnt/share",].model == "SMB"
    assert remote_ones["/scratch",].model == "Lustre"
    assert remote_ones["/gpfs/fs1",].model == "GPFS"
    assert remote_ones["/mnt/beegfs",].model == "BeeGFS"
    assert remote_ones["/mnt/bucket",].device_type == "object"
    assert remote_ones["/mnt/iscsi volume",].device_path == "/dev/sde"


def test_two_ways_to_a_disk_are_one_disk() -> None:
    found = {one.device_path: one for one in read_storage(computer(XEON)).devices}
    assert found["/dev/sdf"].extra_info["paths"] == "sdf, sdg"
    assert found["/dev/sdf"].device_type == "network"
    assert "/dev/sdg" not in found


class Forbidding(ReplayedMachine):
    """A recorded machine on which no program may be started."""

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        raise AssertionError(f"{words[0]} was started")


def test_a_list_on_linux_starts_no_program() -> None:
    assert read_storage(Forbidding(FIXTURES / "machines" / XEON)).devices
    assert "smartctl was started" in str(read_storage(Forbidding(FIXTURES / "machines" / XEON), smart=True).failures)


def test_speeds_are_not_invented_and_the_limit_of_a_link_says_that_it_is_one() -> None:
    for disk in disks(XEON, smart=True).values():
        assert disk.max_read_mbps is disk.max_write_mbps is disk.max_iops is None
        assert "not measured" in disk.reasons["max_read_mbps"]
    assert disks(XEON)["/dev/nvme0n1"].extra_info["pcie_link_limit_mbps"] == 7877
    narrow = disks(XEON)["/dev/nvme1n1"].extra_info
    assert (narrow["pcie_link"], narrow["pcie_link_of_the_disk"]) == ("8 GT/s x2", "8 GT/s x4")
    assert disks(XEON)["/dev/sda"].extra_info["sata_link_gbps"] == 6.0
    assert link_limit(computer("vm-virtio"), "nvme0n1", "") == {}


def test_a_hot_nvme_disk_behind_native_multipath_is_found_without_root() -> None:
    disk = disks("container-cgroup-v2")["/dev/nvme1n1"]
    assert (disk.health_status, disk.temperature_celsius) == ("warning", 86.85)
    assert disk.bus_type == "pcie"


def test_a_container_shows_what_is_mounted_into_it_and_no_overlay() -> None:
    found = disks("container-cgroup-v2")
    assert set(found) == {"/dev/nvme0n1", "/dev/nvme1n1"}
    assert found["/dev/nvme0n1"].mount_points == ()  # its runtime's files over /etc say nothing
    assert found["/dev/nvme1n1"].mount_points == ("/models",)


def test_virtual_disks_are_no_hard_disks_whatever_the_kernel_says_of_rotation() -> None:
    assert disks("vm-virtio")["/dev/vda"].device_type == "virtual"
    google = disks("cloud-vm-buckets")["/dev/sda"]
    assert (google.device_type, google.bus_type) == ("virtual", "virtual")
    assert "its host knows" in google.reasons["health_status"]
    amazon = disks("graviton3")
    assert amazon["/dev/nvme0n1"].device_type == "virtual"
    assert amazon["/dev/nvme1n1"].device_type == "nvme_ssd"


def test_buckets_are_told_by_the_software_that_mounts_them() -> None:
    found = disks("cloud-vm-buckets")
    names = {one.model: point for point, one in found.items() if one.device_type == "object"}
    assert names == {
        "gcsfuse": "/mnt/gcs2",
        "s3fs": "/mnt/s3fs",
        "goofys": "/mnt/goofys",
        "mountpoint-s3": "/mnt/s3",
        "blobfuse2": "/mnt/azure",
        "rclone": "/mnt/rclone",
    }
    assert {"/mnt/gcs", "/mnt/gcs2"} <= set(found)
    assert found["/mnt/sshfs"].device_type == "network"
    assert "/mnt/ntfs" not in found


def test_cards_and_emmc_tell_their_wear_in_steps() -> None:
    worn = disks("rk3588-big-little")["/dev/mmcblk0"]
    assert (worn.health_status, worn.extra_info["life_time_used"]) == ("warning", "80 to 90 %")
    assert worn.wear_level_percent is None
    assert worn.mount_points == ("/",)
    card = disks("raspberry-pi-5")["/dev/mmcblk0"]
    assert (card.device_type, card.bus_type, card.health_status) == ("flash", "mmc", None)
    assert set(disks("riscv-spacemit-k1")) == {"/dev/mmcblk2", "/dev/nvme0n1"}


def test_a_mac_has_one_disk_however_many_containers_lie_in_it() -> None:
    found = disks("macbook-m3-max")
    assert set(found) == {"/dev/disk0", "/dev/disk4", "/Volumes/models", "/Volumes/data"}
    disk = found["/dev/disk0"]
    assert (disk.device_type, disk.bus_type, disk.health_status) == ("nvme_ssd", "pcie", "healthy")
    assert {"/", "/System/Volumes/Data"} <= set(disk.mount_points)
    assert disk.filesystem == "apfs"
    assert found["/dev/disk4"].device_type is None


def test_windows_tells_disks_letters_and_with_smart_their_wear() -> None:
    found = disks("windows-snapdragon-x")
    disk = found["\\\\.\\PhysicalDrive0"]
    assert (disk.device_type, disk.bus_type, disk.health_status) == ("nvme_ssd", "pcie", "healthy")
    assert (disk.mount_points, disk.filesystem, disk.wear_level_percent) == (("C:",), "NTFS", None)
    assert found["Z:"].device_type == "network"
    assert len(found) == 3  # the Storage Space is made of others
    asked = disks("windows-snapdragon-x", smart=True)
    assert asked["\\\\.\\PhysicalDrive0"].wear_level_percent == 3
    assert asked["\\\\.\\PhysicalDrive1"].temperature_celsius is None


def test_mounts_are_unescaped_and_broken_lines_left_out() -> None:
    class One(ReplayedMachine):
        def text(self, path: str) -> str | None:
            return "1 2 8:1 / /a\\040b rw - ext4 /dev/sda1 rw\nbroken\n3 4 8:2 / /c rw -\n\n"

    (only,) = read_mounts(One(FIXTURES / "machines" / "vm-virtio"))
    assert only == Mount(device="8:1", root="/", point="/a b", filesystem="ext4", source="/dev/sda1")


def test_a_server_of_a_parallel_filesystem_has_disks_not_mounts() -> None:
    mount = Mount(device="8:1", root="/", point="/mdt", filesystem="lustre", source="/dev/sdb")
    assert remote(mount) is None
    assert remote(replace(mount, source="10.0.0.1@tcp:/x")) is not None


def test_the_registry_knows_its_kinds_and_refuses_others() -> None:
    assert tuple(KINDS.load_all().found) == ("local", "network")
    assert not KINDS.load_all().failures
    with pytest.raises(UsageError, match="Known: local, network"):
        get_storage_backend("tape")


def test_one_kind_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(NetworkStorage, "list_devices", broken)
    found = read_storage(computer(XEON))
    assert found.failures == {"network": "OSError: no such luck"}
    assert len(found.devices) > 5


def test_a_system_without_sysfs_says_so(tmp_path: Path) -> None:
    found = read_storage(LiveMachine(tmp_path))
    assert found.devices == ()
    assert found.failures == {"local": "/sys/block can't be listed"}


def test_this_machine_has_storage_and_the_list_shows_it() -> None:
    here: Machine = LiveMachine()
    found = read_storage(here)
    assert found.devices or found.failures
    printed = CliRunner().invoke(main, ["list", "--smart", "--replay", str(computer(XEON).folder)])
    assert printed.exit_code == 0
    for text in (
        "Storage\n-------",
        "nvme_ssd\n",
        "Bus:                 pcie",
        "3.84 TB",
        "warning: its spare blocks",
        "<host>:/scratch",
    ):
        assert text in printed.output
    assert max(map(len, printed.output.splitlines())) <= 80
    markdown = CliRunner().invoke(main, ["list", "--format", "markdown", "--replay", str(computer(XEON).folder)])
    assert "&lt;host&gt;:/scratch" in markdown.output


@pytest.mark.parametrize(
    ("files", "status", "temperature"),
    [
        ({"state": "live", "hwmon1/temp1_input": "41850", "hwmon1/temp1_alarm": "0"}, None, 41.85),
        ({"state": "live", "hwmon1/temp1_input": "90850", "hwmon1/temp1_alarm": "1"}, "warning", 90.85),
        ({"state": "dead", "hwmon1/temp1_alarm": "1"}, "critical", None),
    ],
)
def test_an_nvme_disk_that_the_kernel_gave_up_is_critical_and_a_hot_one_a_warning(
    tmp_path: Path, files: dict[str, str], status: str | None, temperature: float | None
) -> None:
    for name, text in files.items():
        path = tmp_path / "sys" / "class" / "nvme" / "nvme0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    found = health_without_root(LiveMachine(tmp_path), "nvme0n1", "")
    assert (found.status, found.temperature_celsius) == (status, temperature)


def test_every_disk_that_is_known_as_virtual_is_told_by_what_it_calls_itself(tmp_path: Path) -> None:
    listed = tomllib.loads(Path(local.__file__).with_name("virtual_disks.toml").read_text(encoding="utf-8"))
    for number, row in enumerate(listed["disk"]):
        block = local.Block(name=f"sd{chr(ord('a') + number)}", link="/devices/pci0/sd", udev={})
        device = tmp_path / block.sysfs.lstrip("/") / "device"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{row['vendor'] or 'Other'}\n")
        (device / "model").write_text(f"{row['model'] or 'Other'}\n")
        (device.parent / "queue").mkdir()
        (device.parent / "queue" / "rotational").write_text("1\n")
        bus, kind, why = local._kind(LiveMachine(tmp_path), block)
        assert row["what"] in why, row
        assert (bus, kind) == (("virtual", "virtual") if row["kind"] == "hypervisor" else (None, None))
