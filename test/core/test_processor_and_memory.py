"""Processors and memory: clusters of cores, instruction sets, control groups, memory modules and unreadable figures.

All figures of the recorded machines are in test_recorded_machines.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_machines import computer

from hardware.detect import detect
from hardware.errors import BackendUnavailable
from hardware.inventory.system import main_memory
from hardware.inventory.system.main_memory import cgroup_memory, free_bytes, group_folders, read_memory
from hardware.inventory.system.processor import CPUInfo, read_cpu
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.recording import ReplayedMachine
from hardware.values import decimal, numbers_of, tables, whole

GIB = 2**30
CPUS = "sys/devices/system/cpu"
ONE_SOCKET = {
    f"{CPUS}/online": "0-3\n",
    **{f"{CPUS}/cpu{n}/topology/physical_package_id": "0\n" for n in range(4)},
    **{f"{CPUS}/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)},
    **{f"{CPUS}/cpu{n}/cache/index0/level": "2\n" for n in range(4)},
    **{f"{CPUS}/cpu{n}/cache/index0/type": "Unified\n" for n in range(4)},
    **{f"{CPUS}/cpu{n}/cache/index0/size": "2048K\n" for n in range(4)},
    **{f"{CPUS}/cpu{n}/cache/index0/shared_cpu_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)},
    f"{CPUS}/cpu0/cpufreq/base_frequency": "2000000\n",
    f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
}
X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu avx avx2 avx512f amx_tile\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
RISCV = "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdcv_zicbom\nmmu\t\t: sv39\nuarch\t\t: spacemit,x60\n"
ARM_TO_COME = (
    "processor\t: 0\nFeatures\t: fp asimd sve sve2 sme sme2 svei8mm smef32f32 i8mm bf16\n"
    "CPU implementer\t: 0x41\nCPU part\t: 0xd84\n"
)


def write(folder: Path, files: dict[str, str]) -> LiveMachine:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return LiveMachine(folder)


def cpu(folder: Path, cpuinfo: str, files: dict[str, str] | None = None) -> CPUInfo:
    return read_cpu(write(folder, {"proc/cpuinfo": cpuinfo, **(files or {})}))


def test_cores_threads_caches_and_frequencies_of_a_linux_machine(tmp_path):
    found = cpu(tmp_path / "whole", X86, ONE_SOCKET)
    assert (found.vendor, found.model) == ("Intel", "Xeon")
    assert (found.sockets, found.cores, found.threads) == (1, 2, 4)
    (cache,) = found.caches
    assert (cache.level, cache.kind, cache.size_bytes, cache.instances) == (2, "unified", 2 * 2**20, 2)
    assert (found.base_frequency_mhz, found.boost_frequency_mhz) == (2000.0, 3800.0)
    assert found.current_frequency_mhz is None
    bare = cpu(tmp_path / "bare", X86)
    assert (bare.threads, bare.cores, bare.sockets, bare.caches) == (1, None, None, ())


def test_instruction_sets_have_names_on_every_architecture(tmp_path):
    for cpuinfo, model, sets in (
        (X86, "Xeon", {"AVX", "AVX2", "AVX-512", "AMX"}),
        (ARM, "Neoverse-V2", {"NEON", "SVE", "BF16"}),
        (RISCV, "spacemit,x60", {"V", "zicbom"}),
        (ARM_TO_COME, "Neoverse-V3", {"SVE", "SVE2", "SME", "SME2", "SME F32F32", "SVE I8MM"}),
    ):
        found = cpu(tmp_path, cpuinfo)
        assert found.model == model
        assert sets <= set(found.instruction_sets)
        assert "AVX-512 BF16" not in found.instruction_sets


def test_cores_of_different_kinds_are_clusters(tmp_path):
    account = "".join(f"processor\t: {number}\nvendor_id\t: GenuineIntel\nflags\t: avx2\n\n" for number in range(12))
    files = {
        "sys/devices/cpu_core/cpus": "0-3\n",
        "sys/devices/cpu_atom/cpus": "4-11\n",
        f"{CPUS}/cpufreq/policy0/cpuinfo_max_freq": "5100000\n",
        f"{CPUS}/cpufreq/policy0/related_cpus": "0\n",
        f"{CPUS}/cpufreq/policy4/cpuinfo_max_freq": "3900000\n",
        f"{CPUS}/cpufreq/policy4/related_cpus": "4\n",
    }
    found = cpu(tmp_path / "hybrid", account, files)
    assert [(one.name, one.threads, one.max_frequency_mhz) for one in found.clusters] == [
        ("performance", 4, 5100),
        ("efficiency", 8, 3900),
    ]
    assert found.boost_frequency_mhz == 5100
    # Cores of a server that boost to different frequencies are of one kind.
    account = "".join(f"processor\t: {n}\nvendor_id\t: AuthenticAMD\nflags\t: avx2\n\n" for n in (0, 1))
    files = {}
    for number, speed in enumerate(("4100000", "3900000")):
        files[f"{CPUS}/cpufreq/policy{number}/cpuinfo_max_freq"] = speed
        files[f"{CPUS}/cpufreq/policy{number}/related_cpus"] = str(number)
    assert cpu(tmp_path / "server", account, files).clusters == ()


def test_a_control_group_limits_the_time_of_processors(tmp_path):
    for line, threads in (("max 100000", None), ("50000 100000", 0.5), ("x", None), ("0 0", None)):
        files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": line}
        assert cpu(tmp_path, "processor: 0\n", files).cgroup_threads == threads, line


def test_the_tightest_memory_limit_of_both_versions_of_control_groups_counts(tmp_path):
    second, group = "sys/fs/cgroup", "proc/self/cgroup"
    first = f"{second}/memory/x/memory.limit_in_bytes"
    nested = {"a/b/memory.max": "4096\n", "a/memory.max": "1024\n", "a/memory.current": "1000\n"}
    for number, (files, limit) in enumerate(
        (
            ({group: "0::/a/b\n", f"{second}/a/b/memory.max": "max\n"}, None),
            ({group: "0::/a/b\n", **{f"{second}/{name}": text for name, text in nested.items()}}, 1024),
            ({group: "0::/not/mounted\n", f"{second}/memory.max": "2048\n"}, 2048),
            ({group: "4:memory:/x\n", first: "512\n"}, 512),
            ({group: "4:memory:/x\n", first: "9223372036854771712\n"}, None),
            ({}, None),
        )
    ):
        assert cgroup_memory(write(tmp_path / str(number), files))[0] == limit, files
    for name, limit in (("container-cgroup-v2", 16 * GIB), ("graviton3", None)):
        memory = read_memory(computer(name))
        assert memory.usable_bytes == (memory.total_bytes if limit is None else limit)


def test_a_control_group_with_fifty_thousand_parts_is_read_to_a_limit(tmp_path):
    machine = write(tmp_path, {"proc/cpuinfo": "processor: 0\n", "proc/self/cgroup": f"0::{'/a' * 50_000}\n"})
    assert 1 < len(list(group_folders(machine, "cpu"))) < 200
    assert read_cpu(machine).cgroup_threads is None


def test_memory_modules_are_read_without_root(tmp_path):
    record = (
        "E:MEMORY_DEVICE_0_SIZE=34359738368\nE:MEMORY_DEVICE_0_TYPE=DDR5\n"
        "E:MEMORY_DEVICE_0_SPEED_MTS=5600\nE:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=4800\n"
        "E:MEMORY_DEVICE_0_BANK_LOCATOR=P0 CHANNEL A\n"
        "E:MEMORY_DEVICE_1_SIZE=34359738368\nE:MEMORY_DEVICE_1_TYPE=DDR5\n"
        "E:MEMORY_DEVICE_1_CONFIGURED_SPEED_MTS=4800\nE:MEMORY_DEVICE_1_BANK_LOCATOR=P0 CHANNEL B\n"
        "E:MEMORY_DEVICE_2_SIZE=0\nE:MEMORY_DEVICE_2_BANK_LOCATOR=P0 CHANNEL C\n"
    )
    account = {"proc/meminfo": "MemTotal: 4 kB\nMemAvailable: 2 kB\nSwapTotal: 1 kB\nSwapFree: 0 kB\n"}
    found = read_memory(write(tmp_path / "with", {**account, "run/udev/data/+dmi:id": record}))
    assert (found.total_bytes, found.available_bytes) == (4096, 2048)
    assert (found.swap_total_bytes, found.swap_free_bytes) == (1024, 0)
    assert (found.kind, found.speed_mts, found.channels) == ("DDR5", 4800, 2)
    unknown = read_memory(write(tmp_path / "without", account))
    assert (unknown.kind, unknown.speed_mts, unknown.channels) == (None, None, None)
    assert read_memory(computer("windows-snapdragon-x")).kind is None, "without `modules` no program is started"


def test_memory_channels_are_counted_by_the_names_of_slots(tmp_path):
    for slots, channels in (
        ([("P0 CHANNEL A", "DIMM 0"), ("P0 CHANNEL A", "DIMM 1"), ("P0 CHANNEL B", "DIMM 0")], 2),
        ([("BANK 0", "Controller0-ChannelA-DIMM0"), ("BANK 0", "Controller1-ChannelA-DIMM0")], 2),
        ([("BANK 0", "DIMM_A1"), ("BANK 1", "DIMM_B1")], None),
    ):
        record = "".join(
            f"E:MEMORY_DEVICE_{number}_SIZE=1\nE:MEMORY_DEVICE_{number}_BANK_LOCATOR={bank}\n"
            f"E:MEMORY_DEVICE_{number}_LOCATOR={slot}\n"
            for number, (bank, slot) in enumerate(slots)
        )
        assert read_memory(write(tmp_path, {"run/udev/data/+dmi:id": record})).channels == channels


def test_memory_that_cannot_be_read_is_unknown_with_its_reason(monkeypatch):
    class NoFiles(ReplayedMachine):
        def text(self, path: str) -> str | None:
            return None

    found = detect(NoFiles(computer("vm-virtio").folder))
    assert found.memory.total_bytes is None
    assert found.memory.usable_bytes is None
    assert "wasn't there" in found.memory.reason
    assert "unknown: psutil wasn't there" in list_text(found)
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
        assert text in list_text(detect(computer(name)))
