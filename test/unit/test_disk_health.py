"""How a disk is, as SMART tells it, and why that isn't known."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import FIXTURES, XEON, disks

from hardware.inventory.system.storage._disk_health import from_smartctl, read_smart
from hardware.machine import LiveMachine, SourceReading
from hardware.recording import ReplayedMachine

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
    disk = disks(XEON, smart=True)[path]
    assert (disk.health_status, disk.temperature_celsius) == (health, temperature)
    assert (disk.wear_level_percent, disk.power_on_hours) == (wear, hours)
    assert why in disk.reasons.get("health_status", "")


def test_without_smart_only_what_costs_nothing_is_known() -> None:
    disk = disks(XEON)["/dev/nvme0n1"]
    assert disk.temperature_celsius == pytest.approx(33.85)
    assert disk.health_status is None
    assert "--smart" in disk.reasons["health_status"]
    assert disks(XEON)["/dev/sdc"].temperature_celsius is None


def test_a_reason_names_what_stands_in_the_way_of_smart() -> None:
    assert "Unknown USB bridge" in disks(XEON, smart=True)["/dev/sdi"].reasons["health_status"]
    denied = disks("riscv-spacemit-k1", smart=True)["/dev/nvme0n1"].reasons
    assert denied["power_on_hours"].startswith("needs root")
    assert "smartctl isn't installed" in disks("container-cgroup-v2", smart=True)["/dev/nvme0n1"].reasons.values()


class Saying(ReplayedMachine):
    """A machine on which every program prints the same."""

    said = SourceReading(value="")

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
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
        ("{}", "doesn't report a status"),
    ],
)
def test_smartctl_that_tells_nothing_is_a_reason(said: str, reason: str) -> None:
    asked = Saying(FIXTURES / "machines" / XEON)
    asked.said = SourceReading(value=said)
    told = read_smart(asked, "/dev/sda")
    assert told.status is None
    assert reason in told.untold


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
    assert found.status == status
    assert bool(found.reason) is (status != "healthy")


def test_a_disk_that_says_it_fails_and_one_below_a_threshold_are_critical() -> None:
    assert from_smartctl({"smart_status": {"passed": False}}).status == "critical"
    attribute = {"name": "Reallocated_Sector_Ct", "when_failed": "now", "flags": {"prefailure": True}, "raw": {}}
    failing = {"smart_status": {"passed": True}, "ata_smart_attributes": {"table": [attribute]}}
    assert from_smartctl(failing).status == "critical"


def test_the_exit_code_of_a_failing_disk_is_no_failure_of_the_program(tmp_path: Path) -> None:
    here = LiveMachine()
    script = ("sh", "-c", "echo told; exit 64")
    assert here.run(*script).value is None
    assert here.run(*script, accept=0xFF).value == "told\n"
    assert here.run("sh", "-c", "kill -9 $$", accept=0xFF).value is None
