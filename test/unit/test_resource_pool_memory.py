"""What the pool knows of devices' memory: the host's with its control group, and what torch tells of others."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

from hardware.inventory.system.main_memory import MemoryInfo, cgroup_files_bytes, cgroup_memory
from hwcompat.plugins.placement.pool import device_memory
from hwcompat.plugins.placement.pool.device_memory import (
    MemoryReading,
    allocated_bytes,
    give_back,
    read_device,
    resident_bytes,
)
from hwcompat.plugins.placement.pool.pool_state import Waits


class Group:
    """A machine of files alone."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def text(self, path: str) -> str | None:
        return self.files.get(path)


def host(monkeypatch: pytest.MonkeyPatch, files_bytes: int = 0, **values: int | None) -> MemoryReading:
    base = {"total_bytes": 1000, "available_bytes": 600, "swap_total_bytes": 0, "swap_free_bytes": 0}
    monkeypatch.setattr(device_memory, "read_memory", lambda: MemoryInfo(**{**base, **values}))
    monkeypatch.setattr(device_memory, "cgroup_files_bytes", lambda: files_bytes)
    return read_device("cpu")


def test_the_host_has_what_is_available(monkeypatch):
    reading = host(monkeypatch)
    assert (reading.total_bytes, reading.free_bytes, reading.used_share) == (1000, 600, 0.4)


def test_a_control_group_with_a_limit_is_the_machine_and_its_files_are_free(monkeypatch):
    reading = host(monkeypatch, files_bytes=150, cgroup_limit_bytes=400, cgroup_used_bytes=350)
    assert (reading.total_bytes, reading.free_bytes, reading.used_share) == (400, 200, 0.5)


def test_a_host_that_tells_nothing_has_a_reason(monkeypatch):
    reading = host(monkeypatch, total_bytes=None, available_bytes=None)
    assert (reading.total_bytes, reading.used_share) == (None, None)
    assert reading.reason


@pytest.mark.parametrize(
    ("own", "folder", "names", "word"),
    [
        ("0::/box", "/sys/fs/cgroup/box", ("memory.max", "memory.current"), "inactive_file"),
        (
            "4:memory:/box",
            "/sys/fs/cgroup/memory/box",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            "total_inactive_file",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_pages_of_files_are_read_from_the_group_with_the_limit(own, folder, names, word):
    files = {
        "/proc/self/cgroup": own,
        f"{folder}/{names[0]}": "4000",
        f"{folder}/{names[1]}": "3500",
        f"{folder}/memory.stat": f"anon 10\n{word} 1500\nactive_file 3\n",
    }
    assert cgroup_memory(Group(files)) == (4000, 3500)
    assert cgroup_files_bytes(Group(files)) == 1500
    del files[f"{folder}/memory.stat"]
    assert cgroup_files_bytes(Group(files)) == 0
    assert cgroup_files_bytes(Group({})) == 0


def test_what_torch_tells_of_a_device_is_asked_by_its_number(monkeypatch):
    freed = []
    told = SimpleNamespace(
        mem_get_info=lambda index: (300 + index, 1000),
        memory_allocated=lambda index: 70 + index,
        empty_cache=lambda: freed.append(1),
    )
    monkeypatch.setattr(torch, "cuda", told)
    for device in ("cuda:1", "rocm:1"):  # ROCm's devices are torch's `cuda`
        reading = read_device(device)
        assert (reading.total_bytes, reading.free_bytes) == (1000, 301)
        assert allocated_bytes(device) == 71
        give_back(device)
    assert freed == [1, 1]


def test_apples_memory_is_what_metal_recommends(monkeypatch):
    told = SimpleNamespace(
        recommended_max_memory=lambda: 1000, driver_allocated_memory=lambda: 400, current_allocated_memory=lambda: 90
    )
    monkeypatch.setattr(torch, "mps", told)
    reading = read_device("mps")
    assert (reading.total_bytes, reading.free_bytes) == (1000, 600)
    assert allocated_bytes("mps") == 90


def test_a_driver_that_raises_and_a_runtime_that_tells_nothing_are_reasons(monkeypatch):
    def lost(index: int) -> tuple[int, int]:
        raise RuntimeError("device lost")

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(mem_get_info=lost, memory_allocated=lost))
    assert read_device("cuda:0") == MemoryReading(reason="RuntimeError: device lost")
    assert allocated_bytes("cuda:0") is None
    assert "doesn't report" in read_device("openvino:NPU").reason
    assert allocated_bytes("cpu") is None
    give_back("cpu")
    assert resident_bytes() > 10**6


def test_a_wait_can_end_where_a_thread_that_runs_is_reached():
    waits = Waits(threading.RLock())
    with waits.waiting(1, lambda: {2}):
        assert waits.can_end(3, {1})  # 2 runs
        assert not waits.can_end(2, {1})  # 1 waits for 2 itself
        assert not waits.can_end(2, {2})
        assert not waits.can_end(2, set())
        with waits.waiting(2, lambda: {3, 1}):
            assert not waits.can_end(3, {1})
            assert waits.can_end(3, {1, 4})
        with waits.waiting(2, set):  # for nobody in particular
            assert waits.can_end(3, {1})
    assert waits.can_end(2, {1})
