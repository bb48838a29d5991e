"""Nothing of a serial number, a server, a user or a bucket in what is printed or kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hardware.detection import detect
from hardware.inventory.system.storage import StorageDeviceInfo
from hardware.machine import LiveMachine
from hardware.recording import MachineRecorder, ReplayedMachine, without_disk_identity


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
    recorder = MachineRecorder(LiveMachine(tmp_path / "root"))
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
