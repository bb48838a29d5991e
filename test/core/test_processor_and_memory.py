"""Processors and memory: what is read on request, in vain, or to a limit.

All figures of the recorded machines are in test_recorded_machines.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import computer

from hardware.detection import detect
from hardware.errors import BackendUnavailable
from hardware.inventory.system import main_memory
from hardware.inventory.system.main_memory import MemoryInfo, free_bytes, group_folders, read_memory
from hardware.inventory.system.processor import read_cpu
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.recording import ReplayedMachine
from hardware.values import decimal, numbers_of, tables, whole

GIB = 2**30


def write(folder: Path, files: dict[str, str]) -> LiveMachine:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return LiveMachine(folder)


def test_a_control_group_with_fifty_thousand_parts_is_read_to_a_limit(tmp_path):
    machine = write(tmp_path, {"proc/cpuinfo": "processor: 0\n", "proc/self/cgroup": f"0::{'/a' * 50_000}\n"})
    assert 1 < len(list(group_folders(machine, "cpu"))) < 200
    assert read_cpu(machine).cgroup_threads is None


def test_memory_modules_of_windows_are_read_only_on_request():
    """They need a program."""
    assert [read_memory(computer("windows-snapdragon-x"), modules=one).kind for one in (False, True)] == [
        None,
        "LPDDR5",
    ]


def test_memory_that_cannot_be_read_is_unknown_with_its_reason(monkeypatch):
    class NoFiles(ReplayedMachine):
        def text(self, path: str) -> str | None:
            return None

    found = detect(NoFiles(computer("vm-virtio").folder))
    assert found.memory.total_bytes is None
    assert found.memory.usable_bytes is None
    assert "wasn't there" in found.memory.reason
    for everything in (False, True):
        assert "psutil wasn't there" in list_text(found, everything=everything)
    monkeypatch.setattr(main_memory, "read_memory", lambda: found.memory)
    with pytest.raises(BackendUnavailable, match="pip install psutil"):
        free_bytes()


def test_figures_that_an_old_kernel_lacks_come_from_psutil(tmp_path):
    found = read_memory(write(tmp_path, {"proc/meminfo": "MemTotal: 4 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"}))
    assert (found.total_bytes, found.swap_total_bytes) == (4096, 0)
    assert found.available_bytes is not None


def test_text_that_is_no_number_is_no_figure():
    assert [whole(one) for one in ("12", "1,5", "", None, True, "9" * 5000, -1, 2**63)] == [12] + [None] * 7
    assert [decimal(one) for one in ("1.5", "1,5", "inf", "nan", "1e999", None)] == [1.5] + [None] * 5
    assert numbers_of("0-3,8,x,5-4,0-99999999999") == (0, 1, 2, 3, 8)
    assert len(numbers_of(",".join(["0-9999"] * 9))) == 2**14
    assert tables({"a": 1}) == [{"a": 1}]
    assert tables(["x", {"a": 1}]) == [{"a": 1}]


def test_the_list_shows_nodes_clusters_and_limits():
    for name, text in (
        ("xeon-two-sockets", "NUMA node 1:           16 threads, 251.9 GiB"),
        ("rk3588-big-little", "Cortex-A55:          4 threads, at most 1800 MHz"),
        ("container-cgroup-v2", "at most 3.5 processors' time"),
    ):
        assert text in list_text(detect(computer(name)), everything=True)


def test_free_memory_is_what_the_control_group_leaves(monkeypatch):
    for limit, used, free in (
        (None, None, 8 * GIB),
        (6 * GIB, GIB, 5 * GIB),
        (6 * GIB, None, 6 * GIB),
        (9 * GIB, 0, 8 * GIB),
    ):
        found = MemoryInfo(
            total_bytes=16 * GIB, available_bytes=8 * GIB, swap_total_bytes=0, swap_free_bytes=0,
            cgroup_limit_bytes=limit, cgroup_used_bytes=used,
        )  # fmt: skip
        monkeypatch.setattr(main_memory, "read_memory", lambda found=found: found)
        assert free_bytes() == free
