"""Processors and memory of recorded machines: three architectures, three systems, clusters, NUMA, control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.detection import detect
from hardware.errors import BackendUnavailable
from hardware.inventory.system import main_memory as memory_module
from hardware.inventory.system.main_memory import MemoryInfo, free_bytes, group_folders, read_memory
from hardware.inventory.system.processor import CPUInfo, read_cpu
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.recording import ReplayedMachine
from hardware.values import decimal, numbers_of, tables, whole

MACHINES = Path(__file__).parents[1] / "fixtures" / "machines"
GIB = 2**30


def cpu(name: str) -> CPUInfo:
    return read_cpu(ReplayedMachine(MACHINES / name))


def memory(name: str) -> MemoryInfo:
    return read_memory(ReplayedMachine(MACHINES / name), modules=True)


def write(folder: Path, files: dict[str, str]) -> LiveMachine:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return LiveMachine(folder)


def test_a_server_with_two_sockets_has_two_nodes_and_matrix_units() -> None:
    found = cpu("xeon-two-sockets")
    assert (found.sockets, found.cores, found.threads, found.usable_threads) == (2, 16, 32, 32)
    assert [(one.node, one.threads) for one in found.numa_nodes] == [(0, 16), (1, 16)]
    assert found.numa_nodes[0].memory_bytes == 263982345 * 1024
    assert found.clusters == ()
    wanted = {"AVX-512", "AVX-512 VNNI", "AVX-512 BF16", "AVX-512 FP16", "AVX-512 VBMI2", "AVX-512 VPOPCNTDQ"}
    assert wanted | {"AMX", "AMX INT8", "AMX BF16"} <= set(found.instruction_sets)
    assert "AMX FP16" not in found.instruction_sets
    assert {(one.level, one.kind, one.instances) for one in found.caches} >= {(3, "unified", 2), (2, "unified", 16)}


def test_persistent_memory_and_modules_are_told() -> None:
    found = memory("xeon-two-sockets")
    assert found.persistent_bytes == 2 * 270582939648
    assert (found.kind, found.speed_mts, found.channels) == ("DDR5", 4800, 16)


@pytest.mark.parametrize(
    ("slots", "channels"),
    [
        ([("P0 CHANNEL A", "DIMM 0"), ("P0 CHANNEL A", "DIMM 1"), ("P0 CHANNEL B", "DIMM 0")], 2),
        ([("BANK 0", "Controller0-ChannelA-DIMM0"), ("BANK 0", "Controller1-ChannelA-DIMM0")], 2),
        ([("BANK 0", "DIMM_A1"), ("BANK 1", "DIMM_B1")], None),
    ],
)
def test_channels_are_counted_by_the_names_of_slots(
    tmp_path: Path, slots: list[tuple[str, str]], channels: int | None
) -> None:
    record = "".join(
        f"E:MEMORY_DEVICE_{number}_SIZE=1\nE:MEMORY_DEVICE_{number}_BANK_LOCATOR={bank}\n"
        f"E:MEMORY_DEVICE_{number}_LOCATOR={slot}\n"
        for number, (bank, slot) in enumerate(slots)
    )
    assert read_memory(write(tmp_path, {"run/udev/data/+dmi:id": record})).channels == channels


def test_cores_of_several_kinds_are_clusters() -> None:
    found = cpu("rk3588-big-little")
    assert found.model == "Cortex-A55 + Cortex-A76"
    assert [(one.name, one.threads, one.max_frequency_mhz) for one in found.clusters] == [
        ("Cortex-A55", 4, 1800),
        ("Cortex-A76", 2, 2400),
        ("Cortex-A76", 2, 2352),
    ]
    assert found.boost_frequency_mhz == 2400
    assert cpu("raspberry-pi-5").clusters == ()


def test_performance_and_efficiency_cores_of_intel_are_clusters(tmp_path: Path) -> None:
    account = "".join(f"processor\t: {number}\nvendor_id\t: GenuineIntel\nflags\t: avx2\n\n" for number in range(12))
    files = {
        "proc/cpuinfo": account,
        "sys/devices/cpu_core/cpus": "0-3\n",
        "sys/devices/cpu_atom/cpus": "4-11\n",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "5100000\n",
        "sys/devices/system/cpu/cpufreq/policy0/related_cpus": "0\n",
        "sys/devices/system/cpu/cpufreq/policy4/cpuinfo_max_freq": "3900000\n",
        "sys/devices/system/cpu/cpufreq/policy4/related_cpus": "4\n",
    }
    found = read_cpu(write(tmp_path, files))
    assert [(one.name, one.threads, one.max_frequency_mhz) for one in found.clusters] == [
        ("performance", 4, 5100),
        ("efficiency", 8, 3900),
    ]
    assert found.boost_frequency_mhz == 5100


def test_a_server_whose_cores_boost_differently_has_no_clusters(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "".join(f"processor\t: {n}\nvendor_id\t: AuthenticAMD\nflags\t: avx2\n\n" for n in (0, 1))
    }
    for number, speed in enumerate(("4100000", "3900000")):
        files[f"sys/devices/system/cpu/cpufreq/policy{number}/cpuinfo_max_freq"] = speed
        files[f"sys/devices/system/cpu/cpufreq/policy{number}/related_cpus"] = str(number)
    assert read_cpu(write(tmp_path, files)).clusters == ()


@pytest.mark.parametrize(
    ("name", "vendor", "model", "sets", "without"),
    [
        ("graviton3", "ARM", "Neoverse-V1", {"NEON", "SVE", "SVE BF16", "I8MM"}, "SVE2"),
        ("riscv-spacemit-k1", "spacemit", "Spacemit(R) X60", {"rv64imafdcv", "V", "zvfh"}, "NEON"),
        ("macbook-m3-max", "Apple", "Apple M3 Max", {"NEON", "BF16", "I8MM"}, "SME"),
        ("windows-snapdragon-x", "Qualcomm", "Snapdragon(R) X Elite - X1E78100 - Qualcomm(R) Oryon(TM) CPU",
         {"NEON", "I8MM"}, "SVE"),
        ("container-cgroup-v2", "AMD", "AMD EPYC 9124 16-Core Processor", {"AVX-512 BF16"}, "AMX"),
    ],
)  # fmt: skip
def test_processors_of_every_architecture_say_what_they_compute_with(
    name: str, vendor: str, model: str, sets: set[str], without: str
) -> None:
    found = cpu(name)
    assert (found.vendor, found.model) == (vendor, model)
    assert sets <= set(found.instruction_sets)
    assert without not in found.instruction_sets


def test_arm_features_of_servers_to_come_have_names(tmp_path: Path) -> None:
    features = "fp asimd sve sve2 sme sme2 svei8mm smef32f32 i8mm bf16"
    account = f"processor\t: 0\nFeatures\t: {features}\nCPU implementer\t: 0x41\nCPU part\t: 0xd84\n"
    found = read_cpu(write(tmp_path, {"proc/cpuinfo": account}))
    assert found.model == "Neoverse-V3"
    assert {"SVE", "SVE2", "SME", "SME2", "SME F32F32", "SVE I8MM"} <= set(found.instruction_sets)


def test_a_mac_tells_its_levels_of_cores_and_their_caches() -> None:
    found = cpu("macbook-m3-max")
    assert (found.sockets, found.cores, found.threads) == (1, 16, 16)
    assert [(one.name, one.threads) for one in found.clusters] == [("Performance", 12), ("Efficiency", 4)]
    second = {one.size_bytes: one.instances for one in found.caches if one.level == 2}
    assert second == {16 * 2**20: 2, 4 * 2**20: 1}
    assert found.source == "sysctl"


def test_a_mac_tells_its_memory() -> None:
    found = memory("macbook-m3-max")
    assert found.total_bytes == 128 * GIB
    assert found.available_bytes == 16384 * (1204518 + 118772 + 2752301)
    assert (found.swap_total_bytes, found.swap_free_bytes) == (2 * GIB, int(1035.5 * 2**20))
    assert found.kind == "LPDDR5"


def test_windows_tells_its_processor_and_memory() -> None:
    found, account = cpu("windows-snapdragon-x"), memory("windows-snapdragon-x")
    assert (found.sockets, found.cores, found.threads, found.base_frequency_mhz) == (1, 12, 12, 3417)
    assert found.source == "Win32_Processor"
    assert account.total_bytes == 32998400 * 1024
    assert account.swap_total_bytes == 2048 * 2**20
    assert account.swap_free_bytes == (2048 - 112) * 2**20
    assert (account.kind, account.speed_mts) == ("LPDDR5", 8448)


def test_the_kind_of_modules_is_asked_of_programs_only_on_demand() -> None:
    assert read_memory(ReplayedMachine(MACHINES / "windows-snapdragon-x")).kind is None


@pytest.mark.parametrize(
    ("name", "threads", "limit", "used"),
    [
        ("container-cgroup-v2", 3.5, 16 * GIB, 4 * GIB),
        ("cloud-vm-buckets", 1.5, 4 * GIB, GIB),
        ("graviton3", None, None, None),
    ],
)
def test_limits_of_both_versions_of_control_groups(
    name: str, threads: float | None, limit: int | None, used: int | None
) -> None:
    account = memory(name)
    assert cpu(name).cgroup_threads == threads
    assert (account.cgroup_limit_bytes, account.cgroup_used_bytes) == (limit, used)
    assert account.usable_bytes == (account.total_bytes if limit is None else limit)


@pytest.mark.parametrize(
    ("line", "threads"), [("max 100000", None), ("50000 100000", 0.5), ("x", None), ("0 0", None)]
)
def test_a_limit_of_processors_time(tmp_path: Path, line: str, threads: float | None) -> None:
    files = {"proc/cpuinfo": "processor: 0\n", "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": line}
    assert read_cpu(write(tmp_path, files)).cgroup_threads == threads


def test_memory_that_nothing_tells_of_is_unknown_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(ReplayedMachine):
        def text(self, path: str) -> str | None:
            return None

    found = detect(Silent(MACHINES / "vm-virtio"))
    assert found.memory.total_bytes is None
    assert found.memory.usable_bytes is None
    assert "wasn't there" in found.memory.reason
    assert "unknown: psutil wasn't there" in list_text(found)
    monkeypatch.setattr(memory_module, "read_memory", lambda: found.memory)
    with pytest.raises(BackendUnavailable, match="pip install psutil"):
        free_bytes()


def test_an_old_kernels_account_is_completed_by_psutil(tmp_path: Path) -> None:
    found = read_memory(write(tmp_path, {"proc/meminfo": "MemTotal: 4 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"}))
    assert (found.total_bytes, found.swap_total_bytes) == (4096, 0)
    assert found.available_bytes is not None


def test_nonsense_is_no_figure() -> None:
    assert [whole(one) for one in ("12", "1,5", "", None, True, "9" * 5000, -1, 2**63)] == [12] + [None] * 7
    assert [decimal(one) for one in ("1.5", "1,5", "inf", "nan", "1e999", None)] == [1.5] + [None] * 5
    assert numbers_of("0-3,8,x,5-4,0-99999999999") == (0, 1, 2, 3, 8)
    assert len(numbers_of(",".join(["0-9999"] * 9))) == 2**14
    assert tables({"a": 1}) == [{"a": 1}]
    assert tables(["x", {"a": 1}]) == [{"a": 1}]


def test_the_list_shows_nodes_clusters_and_limits() -> None:
    def text(name: str) -> str:
        return list_text(detect(ReplayedMachine(MACHINES / name)))

    assert "NUMA node 1:           16 threads, 251.9 GiB" in text("xeon-two-sockets")
    assert "Cortex-A55:          4 threads, at most 1800 MHz" in text("rk3588-big-little")
    assert "at most 3.5 processors' time" in text("container-cgroup-v2")


def test_a_group_of_fifty_thousand_parts_is_asked_no_more_often_than_groups_lie_in_each_other(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor: 0\n", "proc/self/cgroup": f"0::{'/a' * 50_000}\n"}
    machine = write(tmp_path, files)
    asked = list(group_folders(machine, "cpu"))
    assert 1 < len(asked) < 200
    assert read_cpu(machine).cgroup_threads is None
