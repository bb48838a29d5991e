"""Storage: each disk once, its health, why something isn't known, and no names in what is printed or kept.

All figures of the recorded machines, with SMART, are in test_recorded_machines.py.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recorded_machines import FIXTURES, XEON, computer, disks

from hardware.detection import detect
from hardware.errors import UsageError
from hardware.files import CACHE_VARIABLE
from hardware.inventory.system.storage import StorageDeviceInfo, get_storage_backend, local, read_storage
from hardware.inventory.system.storage._disk_health import from_smartctl, health_without_root, link_limit, read_smart
from hardware.inventory.system.storage.measured_speeds import MeasuredSpeed, save_speed, with_measured_speed
from hardware.inventory.system.storage.network import NetworkStorage, remote
from hardware.inventory.system.storage.storage_device import Mount, read_mounts, with_reasons
from hardware.inventory.system.storage.storage_registry import KINDS
from hardware.machine import LiveMachine, SourceReading
from hardware.recording import MachineRecorder, ReplayedMachine, without_disk_identity
from hwcompat.cli.device_commands import devices_group as main


class Printing(ReplayedMachine):
    """A server on which every program prints the same text, or, without one, must not be started."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__(FIXTURES / "machines" / XEON)
        self.printed = text

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        assert self.printed is not None, f"{words[0]} was started"
        return SourceReading(value=self.printed)


def test_a_device_that_a_driver_keeps_in_memory_is_no_disk():
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


def test_speeds_of_other_models_are_unknown_and_the_limit_of_a_link_is_shown_as_one():
    found = disks(XEON)
    listed = found["/dev/nvme1n1"]
    assert (listed.model, listed.max_read_mbps) == ("Samsung SSD 970 EVO 500GB", 3400)
    for disk in (one for one in found.values() if one is not listed):
        assert disk.max_read_mbps is disk.max_write_mbps is disk.max_iops is None
        assert "not measured" in disk.reasons["max_read_mbps"]
    assert found["/dev/nvme0n1"].extra_info["pcie_link_limit_mbps"] == 7877
    narrow = found["/dev/nvme1n1"].extra_info
    assert (narrow["pcie_link"], narrow["pcie_link_of_the_disk"]) == ("8 GT/s x2", "8 GT/s x4")
    assert link_limit(computer("vm-virtio"), "nvme0n1", "") == {}


def test_a_makers_figures_of_a_disk_are_listed_with_their_source():
    disk = with_reasons(StorageDeviceInfo(device_path="/dev/nvme0n1", model="Samsung SSD 970 EVO Plus 1TB"))
    assert (disk.max_read_mbps, disk.max_write_mbps, disk.max_iops) == (3500, 3300, 600_000)
    assert str(disk.extra_info["speed_source"]).startswith("https://")
    assert not {"max_read_mbps", "max_write_mbps", "max_iops"} & set(disk.reasons)
    other = with_reasons(StorageDeviceInfo(device_path="/dev/nvme0n1", model="Samsung SSD 970 EVO Plus 9TB"))
    assert (other.max_read_mbps, "speed_source" in other.extra_info) == (None, False)


def test_a_measured_speed_is_preferred_and_a_broken_file_of_them_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    disk = StorageDeviceInfo(device_path="/dev/sda", model="Samsung SSD 970 EVO 500GB", serial="S1")
    save_speed(disk, MeasuredSpeed(max_read_mbps=800, max_write_mbps=700, max_iops=6000, date="2026-11-27"))
    save_speed(disk, MeasuredSpeed(max_read_mbps=900, max_write_mbps=None, max_iops=7000, date="2026-11-28"))
    found = with_measured_speed(with_reasons(disk))
    assert (found.max_read_mbps, found.max_write_mbps, found.max_iops) == (900, 700, 7000)
    assert str(found.extra_info["measured_speeds"]).endswith("hwcompat devices stress on 2026-11-28")
    for other in (replace(disk, serial="S2"), replace(disk, capacity_bytes=1)):
        assert with_measured_speed(with_reasons(other)).max_read_mbps == 3400
    (file,) = (tmp_path / "rates").iterdir()
    kept = file.read_text(encoding="utf-8")
    for broken in (
        kept.replace("900", "-1"),
        kept.replace("7000", "NaN"),
        kept.replace("2026-11-28", "<b>"),
        "[]",
        "{",
    ):
        file.write_text(broken, encoding="utf-8")
        assert with_measured_speed(with_reasons(disk)).max_read_mbps == 3400


def test_without_smart_no_program_is_started_and_no_disk_is_read():
    assert "its host knows" in disks("cloud-vm-buckets")["/dev/sda"].reasons["health_status"]
    assert read_storage(Printing()).devices
    assert "smartctl was started" in str(read_storage(Printing(), smart=True).failures)
    disk = disks(XEON)["/dev/nvme0n1"]
    assert disk.temperature_celsius == pytest.approx(33.85)
    assert disk.health_status is None
    assert "--smart" in disk.reasons["health_status"]
    assert disks(XEON)["/dev/sdc"].temperature_celsius is None
    for smart, wear in ((False, None), (True, 3)):
        windows = disks("windows-snapdragon-x", smart=smart)["\\\\.\\PhysicalDrive0"]
        assert (windows.health_status, windows.wear_level_percent) == ("healthy", wear)


def test_a_reason_names_what_smart_lacks_and_why_a_disk_is_not_healthy():
    found = disks(XEON, smart=True)
    assert "Unknown USB bridge" in found["/dev/sdi"].reasons["health_status"]
    assert "spare blocks are below" in found["/dev/nvme1n1"].reasons["health_status"]
    assert "16 sectors that can't be read" in found["/dev/sdc"].reasons["health_status"]
    denied = disks("riscv-spacemit-k1", smart=True)["/dev/nvme0n1"].reasons
    assert denied["power_on_hours"].startswith("needs root")
    assert "smartctl isn't installed" in disks("container-cgroup-v2", smart=True)["/dev/nvme0n1"].reasons.values()
    asleep = '{"smartctl": {"exit_status": 2, "messages": [{"string": "Device is in STANDBY mode, exit(2)"}]}}'
    for printed, reason in (
        ("smartctl 6.6 2017-11-05 r4594\n=======> INVALID ARGUMENT", "didn't print JSON"),
        (asleep, "in standby"),
        ("[]", "didn't print JSON"),
        ("{}", "doesn't report a status"),
    ):
        health = read_smart(Printing(printed), "/dev/sda")
        assert health.status is None
        assert reason in health.untold


def test_the_health_of_a_disk_follows_from_its_own_status_and_its_counters():
    log = {"critical_warning": 0, "available_spare": 100, "available_spare_threshold": 10, "percentage_used": 3}
    for change, status in (
        ({"critical_warning": 0x04}, "critical"),
        ({"critical_warning": 0x09}, "critical"),
        ({"critical_warning": 0x02}, "warning"),
        ({"percentage_used": 104}, "warning"),
        ({"available_spare": 5}, "warning"),
        ({"media_errors": 3}, "warning"),
        ({}, "healthy"),
    ):
        data = {"smart_status": {"passed": "critical_warning" not in change}}
        found = from_smartctl({**data, "nvme_smart_health_information_log": log | change})
        assert (found.status, bool(found.reason)) == (status, status != "healthy"), change
    assert from_smartctl({"smart_status": {"passed": False}}).status == "critical"
    attribute = {"name": "Reallocated_Sector_Ct", "when_failed": "now", "flags": {"prefailure": True}, "raw": {}}
    failing = {"smart_status": {"passed": True}, "ata_smart_attributes": {"table": [attribute]}}
    assert from_smartctl(failing).status == "critical"


def test_an_nvme_disk_that_the_kernel_dropped_is_critical_and_a_hot_one_a_warning(tmp_path):
    for number, (files, status, temperature) in enumerate(
        (
            ({"state": "live", "hwmon1/temp1_input": "41850", "hwmon1/temp1_alarm": "0"}, None, 41.85),
            ({"state": "live", "hwmon1/temp1_input": "90850", "hwmon1/temp1_alarm": "1"}, "warning", 90.85),
            ({"state": "dead", "hwmon1/temp1_alarm": "1"}, "critical", None),
        )
    ):
        folder = tmp_path / str(number)
        (folder / "sys" / "class" / "nvme" / "nvme0" / "hwmon1").mkdir(parents=True)
        for name, text in files.items():
            (folder / "sys" / "class" / "nvme" / "nvme0" / name).write_text(f"{text}\n")
        found = health_without_root(LiveMachine(folder), "nvme0n1", "")
        assert (found.status, found.temperature_celsius) == (status, temperature)


def test_mounts_are_unescaped_and_broken_lines_left_out():
    class One(Printing):
        def text(self, path: str) -> str | None:
            return "1 2 8:1 / /a\\040b rw - ext4 /dev/sda1 rw\nbroken\n3 4 8:2 / /c rw -\n\n"

    (only,) = read_mounts(One())
    assert only == Mount(device="8:1", root="/", point="/a b", filesystem="ext4", source="/dev/sda1")
    server = Mount(device="8:1", root="/", point="/mdt", filesystem="lustre", source="/dev/sdb")
    assert remote(server) is None, "the server of a parallel filesystem has disks, not mounts"
    assert remote(replace(server, source="10.0.0.1@tcp:/x")) is not None


def test_the_registry_has_its_kinds_and_one_that_fails_affects_no_other(tmp_path, monkeypatch):
    assert tuple(KINDS.load_all().found) == ("local", "network")
    assert not KINDS.load_all().failures
    with pytest.raises(UsageError, match="Known: local, network"):
        get_storage_backend("tape")
    assert read_storage(LiveMachine(tmp_path)).devices == ()
    assert read_storage(LiveMachine(tmp_path)).failures == {"local": "/sys/block can't be listed"}

    def broken(self: Any) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr(NetworkStorage, "list_devices", broken)
    found = read_storage(computer(XEON))
    assert found.failures == {"network": "OSError: no such luck"}
    assert len(found.devices) > 5


def test_the_list_shows_disks_without_the_names_of_servers():
    words = ["list", "--smart", "--replay", str(computer(XEON).folder)]
    printed = CliRunner().invoke(main, words).output
    rows = ("Storage\n-------", "nvme_ssd\n", "Bus:                 pcie", "3.84 TB", "warning: its spare blocks")
    assert [text for text in (*rows, "<host>:/scratch") if text not in printed] == []
    assert max(map(len, printed.splitlines())) <= 80
    assert "&lt;host&gt;:/scratch" in CliRunner().invoke(main, [*words, "--format", "markdown"]).output


def test_every_virtual_disk_of_the_table_is_recognized_by_its_vendor_and_model(tmp_path):
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


def test_servers_buckets_serial_numbers_and_users_are_not_printed():
    wanted = {
        ("nas01.lab:/export/data", "network"): "<host>:/export/data",
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "network"): "<host>:/scratch",
        ("//alice@nas/share", "network"): "//<host>/share",
        ("\\\\nas\\share", "network"): "\\\\<host>\\share",
        ("https://dav.example.org/files", "network"): "https://<host>/files",
        ("alice@host:data", "network"): "<host>:data",
        ("[fe80::1]:/x", "network"): "<host>:/x",
        ("beegfs_nodev", "network"): "beegfs_nodev",
        ("/dev/sde", "network"): "/dev/sde",
        ("company-secrets", "object"): "<bucket>",
        ("/dev/nvme0n1", "nvme_ssd"): "/dev/nvme0n1",
    }
    points = ("/media/alice/USB", "/home/bob/x")
    for (path, kind), shown in wanted.items():
        device = StorageDeviceInfo(device_path=path, device_type=kind, serial="S466NX0M776250H", mount_points=points)
        kept = device.shareable()
        assert (kept.device_path, kept.serial) == (shown, "<serial>")
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


def test_a_recording_keeps_the_storage_and_no_name(tmp_path):
    for path, text in PRIVATE.items():
        (tmp_path / "root" / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path.lstrip("/")).write_text(text)
    recorder = MachineRecorder(LiveMachine(tmp_path / "root"))
    live = detect(recorder).to_dict()["storage"]
    recorder.write(tmp_path / "kept")
    assert detect(ReplayedMachine(tmp_path / "kept")).to_dict()["storage"] == live
    paths = ["/dev/sda", "<host>:/export", "//<host>/alice-share", "<bucket>"]
    assert [one["device_path"] for one in live] == paths
    written = "".join(path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file())
    names = ("S4EWNX0M12345", "nas01", "nas02", "10.1.2", "username=alice", "company-secrets", "alices-disk",
             "media/alice", "0x5002538e", "CORP")  # fmt: skip
    assert [name for name in names if name in written] == []


def test_what_identifies_a_disk_is_taken_out_of_recorded_texts():
    for name, text, kept in (
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
    ):  # fmt: skip
        assert without_disk_identity(name, text) == kept
