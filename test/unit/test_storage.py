"""Storage of recorded machines: each disk once, what it is, where it is mounted, how it is, and why something isn't
known; and nothing of a serial number, a server or a bucket in what is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from hardware.__main__ import main
from hardware.detection import detect
from hardware.errors import UsageError
from hardware.machine import LiveMachine, Machine, Reading
from hardware.recorded_disks import without_disk_identity
from hardware.recording import Recorder, ReplayedMachine
from hardware.system.storage import StorageDeviceInfo, get_storage_backend, read_storage
from hardware.system.storage._linux_health import link_limit
from hardware.system.storage._mounts import Mount, read_mounts, remote
from hardware.system.storage._smart import from_smartctl, read_smart
from hardware.system.storage.base import BUS_TYPES, DEVICE_TYPES, HEALTH
from hardware.system.storage.factory import registered_storage

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "hardware" / "schemas" / "inventory.json").read_text())
MACHINES = sorted(path.parent for path in (ROOT / "test" / "fixtures" / "machines").glob("*/machine.json"))
XEON = "xeon-two-sockets"


def machine(name: str) -> ReplayedMachine:
    return ReplayedMachine(ROOT / "test" / "fixtures" / "machines" / name)


def devices(name: str, *, smart: bool = False) -> dict[str, StorageDeviceInfo]:
    found = read_storage(machine(name), smart=smart)
    assert not found.failures
    return {
        one.mount_points[0] if one.bus_type == "network" and one.mount_points else one.device_path: one
        for one in found.devices
    }


@pytest.mark.parametrize("folder", MACHINES, ids=lambda path: path.name)
def test_the_inventory_of_every_recorded_machine_has_the_published_shape(folder: Path) -> None:
    for smart in (False, True):
        found = detect(ReplayedMachine(folder), smart=smart)
        jsonschema.Draft202012Validator(SCHEMA).validate(found.to_dict())
        assert found.storage
        for one in found.storage:
            assert one.device_type in (*DEVICE_TYPES, None)
            assert one.bus_type in (*BUS_TYPES, None)
            assert one.health_status in (*HEALTH, None)
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
    local = get_storage_backend("local", machine(XEON)).list_devices()
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

    found = read_storage(WithAnother(machine(XEON).folder)).devices
    assert len(found) > 10
    assert "/dev/scratch0" not in {one.device_path for one in found}


def test_what_lies_on_a_mapping_or_an_array_is_mounted_of_its_disks() -> None:
    found = devices(XEON)
    assert found["/dev/nvme0n1"].mount_points == ("/", "/boot", "/boot/efi", "/data")
    assert found["/dev/nvme0n1"].filesystem == "ext4 + vfat + xfs"
    assert found["/dev/sda"].mount_points == found["/dev/sdb"].mount_points == ("/var/lib/docker",)
    assert (found["/dev/nvme1n1"].mount_points, found["/dev/nvme1n1"].filesystem) == ((), None)
    assert found["/dev/sdi"].filesystem == "vfat"  # not mounted: udev looked


def test_the_name_of_a_sata_disk_is_whole() -> None:
    disk = devices(XEON)["/dev/sdc"]
    assert (disk.model, disk.firmware) == ("HGST HUS726040ALE614", "APGNW907")
    assert disk.capacity_bytes == 4000787030016
    assert disk.capacity_gb == 4000.79


def test_storage_of_a_network_is_told_by_kind() -> None:
    found = read_storage(machine(XEON)).devices
    remote_ones = {one.mount_points: one for one in found if one.bus_type == "network"}
    assert remote_ones["/mnt/nfs/datasets", "/imagenet"].filesystem == "nfs4"
    assert remote_ones["/mnt/share",].model == "SMB"
    assert remote_ones["/scratch",].model == "Lustre"
    assert remote_ones["/gpfs/fs1",].model == "GPFS"
    assert remote_ones["/mnt/beegfs",].model == "BeeGFS"
    assert remote_ones["/mnt/bucket",].device_type == "object"
    assert remote_ones["/mnt/iscsi volume",].device_path == "/dev/sde"


def test_two_ways_to_a_disk_are_one_disk() -> None:
    found = {one.device_path: one for one in read_storage(machine(XEON)).devices}
    assert found["/dev/sdf"].extra_info["paths"] == "sdf, sdg"
    assert found["/dev/sdf"].device_type == "network"
    assert "/dev/sdg" not in found


HEALTH_OF = [
    ("/dev/nvme0n1", "healthy", 27, 0, 150, ""),
    ("/dev/nvme1n1", "warning", 42, 83, 12798, "spare blocks are below"),
    ("/dev/sda", "healthy", 30, 1, 34579, ""),
    ("/dev/sdb", "healthy", 30, 63, 34580, ""),
    ("/dev/sdc", "warning", 38, None, 51243, "16 sectors that can't be read"),
    ("/dev/sdd", "healthy", 32, None, 12437, ""),
]


@pytest.mark.parametrize(("path", "health", "temperature", "wear", "hours", "why"), HEALTH_OF)
def test_smart_tells_how_a_disk_is(
    path: str, health: str, temperature: int, wear: int | None, hours: int, why: str
) -> None:
    disk = devices(XEON, smart=True)[path]
    assert (disk.health_status, disk.temperature_celsius) == (health, temperature)
    assert (disk.wear_level_percent, disk.power_on_hours) == (wear, hours)
    assert why in disk.reasons.get("health_status", "")


def test_without_smart_only_what_costs_nothing_is_known() -> None:
    disk = devices(XEON)["/dev/nvme0n1"]
    assert disk.temperature_celsius == pytest.approx(33.85)
    assert disk.health_status is None
    assert "--smart" in disk.reasons["health_status"]
    assert devices(XEON)["/dev/sdc"].temperature_celsius is None


class Forbidding(ReplayedMachine):
    """A recorded machine on which no program may be started."""

    def run(self, *words: str, accept: int = 0) -> Reading[str]:
        raise AssertionError(f"{words[0]} was started")


def test_a_list_on_linux_starts_no_program() -> None:
    assert read_storage(Forbidding(ROOT / "test" / "fixtures" / "machines" / XEON)).devices
    assert "smartctl was started" in str(
        read_storage(Forbidding(ROOT / "test" / "fixtures" / "machines" / XEON), smart=True).failures
    )


def test_speeds_are_not_invented_and_the_limit_of_a_link_says_that_it_is_one() -> None:
    for disk in devices(XEON, smart=True).values():
        assert disk.max_read_mbps is disk.max_write_mbps is disk.max_iops is None
        assert "not measured" in disk.reasons["max_read_mbps"]
    assert devices(XEON)["/dev/nvme0n1"].extra_info["pcie_link_limit_mbps"] == 7877
    narrow = devices(XEON)["/dev/nvme1n1"].extra_info
    assert (narrow["pcie_link"], narrow["pcie_link_of_the_disk"]) == ("8 GT/s x2", "8 GT/s x4")
    assert devices(XEON)["/dev/sda"].extra_info["sata_link_gbps"] == 6.0
    assert link_limit(machine("vm-virtio"), "nvme0n1", "") == {}


def test_a_reason_names_what_stands_in_the_way_of_smart() -> None:
    assert "Unknown USB bridge" in devices(XEON, smart=True)["/dev/sdi"].reasons["health_status"]
    denied = devices("riscv-spacemit-k1", smart=True)["/dev/nvme0n1"].reasons
    assert denied["power_on_hours"].startswith("needs root")
    assert "smartctl isn't installed" in devices("container-cgroup-v2", smart=True)["/dev/nvme0n1"].reasons.values()


class Saying(ReplayedMachine):
    """A machine on which every program prints the same."""

    said = Reading(value="")

    def run(self, *words: str, accept: int = 0) -> Reading[str]:
        return self.said


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("smartctl 6.6 2017-11-05 r4594\n=======> INVALID ARGUMENT", "printed no JSON"),
        (
            '{"smartctl": {"exit_status": 2, "messages": [{"string": "Device is in STANDBY mode, exit(2)"}]}}',
            "sleeps",
        ),
        ("[]", "printed no JSON"),
        ("{}", "tells no status"),
    ],
)
def test_smartctl_that_tells_nothing_is_a_reason(said: str, reason: str) -> None:
    asked = Saying(ROOT / "test" / "fixtures" / "machines" / XEON)
    asked.said = Reading(value=said)
    told = read_smart(asked, "/dev/sda")
    assert told.health.status is None
    assert reason in told.reason


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"critical_warning": 0x04}, "critical"),
        ({"critical_warning": 0x09}, "critical"),
        ({"critical_warning": 0x02}, "warning"),
        ({"percentage_used": 104}, "warning"),
        ({"available_spare": 5}, "warning"),
        ({"media_errors": 3}, "warning"),
        ({}, "healthy"),
    ],
)
def test_what_an_nvme_disk_counts_is_judged(change: dict[str, int], status: str) -> None:
    log = {"critical_warning": 0, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3}
    data = {"smart_status": {"passed": not change}, "nvme_smart_health_information_log": log | change}
    if "critical_warning" not in change:
        data["smart_status"] = {"passed": True}
    found = from_smartctl(data)
    assert found.health.status == status
    assert bool(found.health.reason) is (status != "healthy")


def test_a_disk_that_says_it_fails_and_one_below_a_threshold_are_critical() -> None:
    assert from_smartctl({"smart_status": {"passed": False}}).health.status == "critical"
    attribute = {"name": "Reallocated_Sector_Ct", "when_failed": "now", "flags": {"prefailure": True}, "raw": {}}
    failing = {"smart_status": {"passed": True}, "ata_smart_attributes": {"table": [attribute]}}
    assert from_smartctl(failing).health.status == "critical"


def test_the_exit_code_of_a_failing_disk_is_no_failure_of_the_program(tmp_path: Path) -> None:
    here = LiveMachine()
    script = ("sh", "-c", "echo told; exit 64")
    assert here.run(*script).value is None
    assert here.run(*script, accept=0xFF).value == "told\n"
    assert here.run("sh", "-c", "kill -9 $$", accept=0xFF).value is None


def test_a_hot_nvme_disk_behind_native_multipath_is_found_without_root() -> None:
    disk = devices("container-cgroup-v2")["/dev/nvme1n1"]
    assert (disk.health_status, disk.temperature_celsius) == ("warning", 86.85)
    assert disk.bus_type == "pcie"


def test_a_container_shows_what_is_mounted_into_it_and_no_overlay() -> None:
    found = devices("container-cgroup-v2")
    assert set(found) == {"/dev/nvme0n1", "/dev/nvme1n1"}
    assert found["/dev/nvme0n1"].mount_points == ()  # its runtime's files over /etc say nothing
    assert found["/dev/nvme1n1"].mount_points == ("/models",)


def test_virtual_disks_are_no_hard_disks_whatever_the_kernel_says_of_rotation() -> None:
    assert devices("vm-virtio")["/dev/vda"].device_type == "virtual"
    google = devices("cloud-vm-buckets")["/dev/sda"]
    assert (google.device_type, google.bus_type) == ("virtual", "virtual")
    assert "its host knows" in google.reasons["health_status"]
    amazon = devices("graviton3")
    assert amazon["/dev/nvme0n1"].device_type == "virtual"
    assert amazon["/dev/nvme1n1"].device_type == "nvme_ssd"


def test_buckets_are_told_by_the_software_that_mounts_them() -> None:
    found = devices("cloud-vm-buckets")
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
    worn = devices("rk3588-big-little")["/dev/mmcblk0"]
    assert (worn.health_status, worn.extra_info["life_time_used"]) == ("warning", "80 to 90 %")
    assert worn.wear_level_percent is None
    assert worn.mount_points == ("/",)
    card = devices("raspberry-pi-5")["/dev/mmcblk0"]
    assert (card.device_type, card.bus_type, card.health_status) == ("flash", "mmc", None)
    assert set(devices("riscv-spacemit-k1")) == {"/dev/mmcblk2", "/dev/nvme0n1"}


def test_a_mac_has_one_disk_however_many_containers_lie_in_it() -> None:
    found = devices("macbook-m3-max")
    assert set(found) == {"/dev/disk0", "/dev/disk4", "/Volumes/models", "/Volumes/data"}
    disk = found["/dev/disk0"]
    assert (disk.device_type, disk.bus_type, disk.health_status) == ("nvme_ssd", "pcie", "healthy")
    assert {"/", "/System/Volumes/Data"} <= set(disk.mount_points)
    assert disk.filesystem == "apfs"
    assert found["/dev/disk4"].device_type is None


def test_windows_tells_disks_letters_and_with_smart_their_wear() -> None:
    found = devices("windows-snapdragon-x")
    disk = found["\\\\.\\PhysicalDrive0"]
    assert (disk.device_type, disk.bus_type, disk.health_status) == ("nvme_ssd", "pcie", "healthy")
    assert (disk.mount_points, disk.filesystem, disk.wear_level_percent) == (("C:",), "NTFS", None)
    assert found["Z:"].device_type == "network"
    assert len(found) == 3  # the Storage Space is made of others
    asked = devices("windows-snapdragon-x", smart=True)
    assert asked["\\\\.\\PhysicalDrive0"].wear_level_percent == 3
    assert asked["\\\\.\\PhysicalDrive1"].temperature_celsius is None


@pytest.mark.parametrize(
    ("path", "kind", "shown"),
    [
        ("nas01.lab:/export/data", "network", "<host>:/export/data"),
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "network", "<host>:/scratch"),
        ("//alice@nas/share", "network", "//<host>/share"),
        ("\\\\nas\\share", "network", "\\\\<host>\\share"),
        ("https://dav.example.org/files", "network", "https://<host>/files"),
        ("alice@host:data", "network", "<host>:data"),
        ("[fe80::1]:/x", "network", "<host>:/x"),
        ("beegfs_nodev", "network", "beegfs_nodev"),
        ("/dev/sde", "network", "/dev/sde"),
        ("company-secrets", "object", "<bucket>"),
        ("/dev/nvme0n1", "nvme_ssd", "/dev/nvme0n1"),
    ],
)
def test_servers_buckets_serials_and_users_are_not_printed(path: str, kind: str, shown: str) -> None:
    device = StorageDeviceInfo(
        device_path=path, device_type=kind, serial="S466NX0M776250H", mount_points=("/media/alice/USB", "/home/bob/x")
    )
    kept = device.shareable()
    assert kept.device_path == shown
    assert kept.serial == "<serial>"
    assert kept.mount_points == ("/media/<user>/USB", "/home/<user>/x")
    assert replace(device, serial=None).shareable().serial is None


PRIVATE = {
    "/proc/self/mountinfo": (
        "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 28 0:50 / /data rw - nfs4 nas01.lab:/export rw,clientaddr=10.1.2.3,addr=10.1.2.4\n"
        "41 28 0:51 / /share rw - cifs //nas02/alice-share rw,username=alice,domain=CORP,addr=10.1.2.5\n"
        "42 28 0:52 / /b rw - fuse.gcsfuse company-secrets rw\n"
        "43 28 0:53 / /media/alice/USB rw - vfat /dev/sda2 rw\n"
    ),
    "/sys/block/sda/size": "1000",
    "/sys/block/sda/dev": "8:0",
    "/sys/block/sda/sda1/dev": "8:1",
    "/sys/block/sda/sda2/dev": "8:2",
    "/sys/block/sda/device/serial": "S4EWNX0M12345",
    "/sys/block/sda/queue/rotational": "0",
    "/run/udev/data/b8:0": "S:disk/by-id/ata-X_S4EWNX0M12345\nE:ID_MODEL=Samsung_SSD_870\n"
    "E:ID_SERIAL=X_S4EWNX0M12345\nE:ID_SERIAL_SHORT=S4EWNX0M12345\nE:ID_FS_LABEL=alices-disk\nE:ID_WWN=0x5002538e00000000\n",
    "/proc/meminfo": "MemTotal: 4 kB\nMemAvailable: 2 kB\nSwapTotal: 1 kB\nSwapFree: 0 kB\n",
    "/proc/cpuinfo": "processor\t: 0\n",
}


def test_a_recording_keeps_the_inventory_and_no_name(tmp_path: Path) -> None:
    for path, text in PRIVATE.items():
        (tmp_path / "root" / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path.lstrip("/")).write_text(text)
    recorder = Recorder(LiveMachine(tmp_path / "root"))
    live = detect(recorder)
    recorder.write(tmp_path / "kept")
    again = detect(ReplayedMachine(tmp_path / "kept"))
    assert again.to_dict()["storage"] == live.to_dict()["storage"]
    assert [one["device_path"] for one in live.to_dict()["storage"]] == [
        "/dev/sda",
        "<host>:/export",
        "//<host>/alice-share",
        "<bucket>",
    ]
    written = "".join(path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file())
    for name in ("S4EWNX0M12345", "nas01", "nas02", "10.1.2", "username=alice", "company-secrets", "alices-disk",
                 "media/alice", "0x5002538e", "CORP"):  # fmt: skip
        assert name not in written


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("files/sys/block/dm-0/dm/uuid", "mpath-3600a098038303053", "mpath-<serial>"),
        ("files/sys/class/nvme/nvme0/subsysnqn", "nqn.2014.08.org:S466", "<serial>"),
        ("commands/00-smartctl.json", '"wwn": {"naa": 5, "oui": 9528, "id": 123}', '"wwn": {}'),
        ("commands/00-diskutil.txt", "<key>VolumeName</key>\n<string>Ann</string>",
         "<key>VolumeName</key>\n<string>volume</string>"),
        ("commands/00-mount.txt", "//ann@nas/m on /Volumes/m (smbfs, mounted by ann)",
         "//<host>/m on /Volumes/m (smbfs, mounted by <user>)"),
        ("commands/00-mount.txt", "nas.local:/data on /Volumes/d (nfs)", "<host>:/data on /Volumes/d (nfs)"),
        ("files/sys/block/vda/serial", "", ""),
        ("files/proc/cpuinfo", "model name : X", "model name : X"),
    ],
)  # fmt: skip
def test_what_tells_a_disk_from_another_is_taken_out(name: str, text: str, kept: str) -> None:
    assert without_disk_identity(name, text) == kept


def test_mounts_are_unescaped_and_broken_lines_left_out() -> None:
    class One(ReplayedMachine):
        def text(self, path: str) -> str | None:
            return "1 2 8:1 / /a\\040b rw - ext4 /dev/sda1 rw\nbroken\n3 4 8:2 / /c rw -\n\n"

    (only,) = read_mounts(One(ROOT / "test" / "fixtures" / "machines" / "vm-virtio"))
    assert only == Mount(device="8:1", root="/", point="/a b", filesystem="ext4", source="/dev/sda1")


def test_a_server_of_a_parallel_filesystem_has_disks_not_mounts() -> None:
    mount = Mount(device="8:1", root="/", point="/mdt", filesystem="lustre", source="/dev/sdb")
    assert remote(mount) is None
    assert remote(replace(mount, source="10.0.0.1@tcp:/x")) is not None


def test_the_registry_knows_four_kinds_and_refuses_others() -> None:
    assert tuple(registered_storage().classes) == ("local", "network", "parallel", "object")
    assert not registered_storage().failures
    with pytest.raises(UsageError, match="Known: local, network, parallel, object"):
        get_storage_backend("tape")


def test_one_kind_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from hardware.system.storage.object import ObjectStorage

    def broken(self: Any) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(ObjectStorage, "list_devices", broken)
    found = read_storage(machine(XEON))
    assert found.failures == {"object": "OSError: no such luck"}
    assert len(found.devices) > 10


def test_a_system_without_sysfs_says_so(tmp_path: Path) -> None:
    found = read_storage(LiveMachine(tmp_path))
    assert found.devices == ()
    assert found.failures == {"local": "/sys/block can't be listed"}


def test_this_machine_has_storage_and_the_list_shows_it() -> None:
    here: Machine = LiveMachine()
    found = read_storage(here)
    assert found.devices or found.failures
    printed = CliRunner().invoke(main, ["list", "--smart", "--replay", str(machine(XEON).folder)])
    assert printed.exit_code == 0
    for text in ("Storage\n-------", "nvme_ssd, pcie", "3.84 TB", "warning: its spare blocks", "<host>:/scratch"):
        assert text in printed.output
    assert max(map(len, printed.output.splitlines())) <= 80
    markdown = CliRunner().invoke(main, ["list", "--format", "markdown", "--replay", str(machine(XEON).folder)])
    assert "&lt;host>:/scratch" in markdown.output
