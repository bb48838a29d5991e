"""The inventory: processor, memory, torch's build, targets, the probe, and the list that a user reads."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from hardware import known_answer
from hardware.__main__ import main
from hardware.backends.factory import known_targets
from hardware.command_line import open_door
from hardware.detection import HardwareInfo, detect, probe, targets
from hardware.errors import BackendUnavailable, UsageError
from hardware.expected_targets import expected_targets
from hardware.inventory.system.main_memory import cgroup_memory, read_memory
from hardware.inventory.system.processor import read_cpu
from hardware.inventory.vendors._pci import PciDevice
from hardware.inventory.vendors.vendor import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts
from hardware.inventory_text import list_text
from hardware.machine import LiveMachine
from hardware.software import TorchBuild, parse_torch_version

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "hardware" / "schemas" / "inventory.json").read_text())
GIB = 2**30

H200 = AcceleratorInfo(vendor="NVIDIA", device_type="gpu", model="NVIDIA H200", index=0, memory_bytes=141 * GIB)
WORKING = VendorFacts(vendor="NVIDIA", hardware=HardwareState.PRESENT, driver=DriverState.OK, library=LibraryState.OK)


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect()


def machine(here: HardwareInfo, torch: TorchBuild, *devices: AcceleratorInfo, **other: Any) -> HardwareInfo:
    facts = (WORKING,) if devices else (replace(WORKING, hardware=HardwareState.ABSENT, reason="no driver"),)
    return replace(here, torch=torch, accelerators=devices, vendors=facts, **other)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_inventory_has_the_published_shape(here: HardwareInfo) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(here.to_dict())
    assert json.loads(json.dumps(here.to_dict())) == here.to_dict()


def test_the_inventory_knows_this_machine(here: HardwareInfo) -> None:
    assert here.memory.total_bytes >= here.memory.usable_bytes > 0
    assert here.cpu.threads is None or here.cpu.threads >= (here.cpu.cores or 1)
    assert here.host.python_version == ".".join(map(str, sys.version_info[:3]))
    assert here.packages["pytest"] == pytest.__version__
    assert here.accelerator_count == len(here.accelerators)


def test_detection_imports_no_framework() -> None:
    code = (
        "import sys\nfrom hardware.detection import detect, targets\ntargets(detect())\n"
        "print(sorted({'torch', 'transformers', 'openvino', 'numpy', 'pandas', 'jsonschema', 'duckdb'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


ONE_SOCKET = {
    "sys/devices/system/cpu/online": "0-3\n",
    **{f"sys/devices/system/cpu/cpu{n}/topology/physical_package_id": "0\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/cache/index0/level": "2\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/cache/index0/type": "Unified\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/cache/index0/size": "2048K\n" for n in range(4)},
    **{f"sys/devices/system/cpu/cpu{n}/cache/index0/shared_cpu_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)},
    "sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "2000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3800000\n",
}
X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu avx avx2 avx512f amx_tile\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
RISCV = "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdcv_zicbom\nmmu\t\t: sv39\nuarch\t\t: spacemit,x60\n"


def cpu(folder: Path, cpuinfo: str) -> Any:
    write(folder, {"proc/cpuinfo": cpuinfo, **ONE_SOCKET})
    return read_cpu(LiveMachine(folder))


def test_cores_threads_caches_and_frequencies_of_a_linux_machine(tmp_path: Path) -> None:
    found = cpu(tmp_path, X86)
    assert (found.vendor, found.model) == ("Intel", "Xeon")
    assert (found.sockets, found.cores, found.threads) == (1, 2, 4)
    (cache,) = found.caches
    assert (cache.level, cache.kind, cache.size_bytes, cache.instances) == (2, "unified", 2 * 2**20, 2)
    assert (found.base_frequency_mhz, found.boost_frequency_mhz) == (2000.0, 3800.0)
    assert found.current_frequency_mhz is None


@pytest.mark.parametrize(
    ("cpuinfo", "model", "sets"),
    [
        (X86, "Xeon", {"AVX", "AVX2", "AVX-512", "AMX"}),
        (ARM, "Neoverse-V2", {"NEON", "SVE", "BF16"}),
        (RISCV, "spacemit,x60", {"V", "zicbom"}),
    ],
)
def test_instruction_sets_of_three_architectures(tmp_path: Path, cpuinfo: str, model: str, sets: set[str]) -> None:
    found = cpu(tmp_path, cpuinfo)
    assert found.model == model
    assert sets <= set(found.instruction_sets)
    assert "AVX-512 BF16" not in found.instruction_sets


def test_a_bare_proc_folder_leaves_the_rest_unknown(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": X86})
    found = read_cpu(LiveMachine(tmp_path))
    assert (found.threads, found.cores, found.sockets, found.caches) == (1, None, None, ())


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "4096\n",
                "sys/fs/cgroup/a/memory.max": "1024\n",
                "sys/fs/cgroup/a/memory.current": "1000\n",
            },
            1024,
        ),
        ({"proc/self/cgroup": "0::/not/mounted\n", "sys/fs/cgroup/memory.max": "2048\n"}, 2048),
        ({"proc/self/cgroup": "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "512\n"}, 512),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_the_tightest_memory_limit_of_both_control_group_versions(
    tmp_path: Path, files: dict[str, str], limit: int | None
) -> None:
    write(tmp_path, files)
    found, _ = cgroup_memory(LiveMachine(tmp_path))
    assert found == limit


def test_memory_modules_are_read_without_root(tmp_path: Path) -> None:
    record = (
        "E:MEMORY_DEVICE_0_SIZE=34359738368\nE:MEMORY_DEVICE_0_TYPE=DDR5\n"
        "E:MEMORY_DEVICE_0_SPEED_MTS=5600\nE:MEMORY_DEVICE_0_CONFIGURED_SPEED_MTS=4800\n"
        "E:MEMORY_DEVICE_0_BANK_LOCATOR=P0 CHANNEL A\n"
        "E:MEMORY_DEVICE_1_SIZE=34359738368\nE:MEMORY_DEVICE_1_TYPE=DDR5\n"
        "E:MEMORY_DEVICE_1_CONFIGURED_SPEED_MTS=4800\nE:MEMORY_DEVICE_1_BANK_LOCATOR=P0 CHANNEL B\n"
        "E:MEMORY_DEVICE_2_SIZE=0\nE:MEMORY_DEVICE_2_BANK_LOCATOR=P0 CHANNEL C\n"
    )
    account = "MemTotal: 4 kB\nMemAvailable: 2 kB\nSwapTotal: 1 kB\nSwapFree: 0 kB\n"
    write(tmp_path / "with", {"proc/meminfo": account, "run/udev/data/+dmi:id": record})
    write(tmp_path / "without", {"proc/meminfo": account})
    found = read_memory(LiveMachine(tmp_path / "with"))
    assert (found.total_bytes, found.available_bytes, found.swap_total_bytes, found.swap_free_bytes) == (
        *(4096, 2048),
        *(1024, 0),
    )
    assert (found.kind, found.speed_mts, found.channels) == ("DDR5", 4800, 2)
    unknown = read_memory(LiveMachine(tmp_path / "without"))
    assert (unknown.kind, unknown.speed_mts, unknown.channels) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "kind", "local"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu", "cpu"),
        ("__version__ = '2.11.0'\ncuda: Optional[str] = '12.8'\nhip = None\n", "cuda", ""),
        ("__version__ = '2.9.0+rocm6.4'\ncuda = None\nhip: Optional[str] = '6.4.1'\n", "rocm", "rocm6.4"),
        ("__version__ = '2.9.0+xpu'\ncuda = None\nhip = None\nxpu: Optional[str] = '20250302'\n", "xpu", "xpu"),
    ],
)
def test_the_build_of_torch_is_read_from_its_text(tmp_path: Path, text: str, kind: str, local: str) -> None:
    write(tmp_path, {"version.py": text})
    build = parse_torch_version(tmp_path / "version.py")
    assert (build.kind, build.local, build.reason) == (kind, local, "")


@pytest.mark.parametrize("text", ["raise SystemExit(1)\n", "__version__ = \n", "\0"])
def test_a_broken_torch_is_a_reason_and_is_never_run(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"version.py": text})
    build = parse_torch_version(tmp_path / "version.py")
    assert build.kind == "none"
    assert build.reason


def status(inventory: HardwareInfo, name: str) -> Any:
    (found,) = expected_targets(inventory, [name])
    return found


CUDA = TorchBuild(version="2.11.0+cu128", cuda="12.8")
ROCM = TorchBuild(version="2.11.0+rocm6.4", hip="6.4.1")
CPU = TorchBuild(version="2.13.0+cpu")


def test_every_known_target_has_a_status(here: HardwareInfo) -> None:
    found = targets(here)
    assert tuple(one.target for one in found) == known_targets()
    assert all(one.expected or one.reason for one in found)


def test_cuda_is_expected_with_the_right_build_and_a_device(here: HardwareInfo) -> None:
    found = status(machine(here, CUDA, H200, replace(H200, index=1)), "cuda")
    assert found.expected
    assert found.memory_bytes == 141 * GIB
    assert found.device_name == "2 × NVIDIA H200"


def test_cuda_names_each_thing_that_is_missing(here: HardwareInfo) -> None:
    assert "built for cpu" in status(machine(here, CPU, H200), "cuda").reason
    assert "no driver" in status(machine(here, CUDA), "cuda").reason
    both = status(machine(here, CPU), "cuda").reason
    assert "built for cpu" in both
    assert "no driver" in both
    hidden = replace(H200, extra_info={"hidden_by": "CUDA_VISIBLE_DEVICES"})
    assert "CUDA_VISIBLE_DEVICES hides every device" in status(machine(here, CUDA, hidden), "cuda").reason
    assert status(machine(here, CUDA, H200, hidden), "cuda").expected


def test_a_replayed_machine_does_not_obey_the_variables_of_this_one(
    here: HardwareInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert status(machine(here, CUDA, H200), "cuda").expected


def test_a_device_that_only_the_bus_shows_is_not_expected(here: HardwareInfo) -> None:
    found = status(machine(here, CUDA, replace(H200, index=None, seen_by="bus", memory_bytes=None)), "cuda")
    assert not found.expected
    assert found.memory_bytes is None


def test_amd_is_told_from_nvidia_by_the_build_of_torch(here: HardwareInfo) -> None:
    amd = PciDevice(address="0000:01:00.0", vendor_id=0x1002, device_id=0x744C, class_code=0x030000)
    inventory = machine(here, ROCM, on_bus=(amd,))
    assert status(inventory, "rocm").expected
    assert not status(inventory, "cuda").expected
    assert "built for rocm" in status(inventory, "cuda").reason
    assert not status(machine(here, CUDA, H200, on_bus=(amd,)), "rocm").expected


def test_without_torch_cpu_says_how_to_get_it(here: HardwareInfo) -> None:
    found = status(machine(here, TorchBuild(reason="torch isn't installed: pip install torch")), "cpu")
    assert not found.expected
    assert "pip install torch" in found.reason


def test_openvino_is_expected_only_where_it_is_installed(here: HardwareInfo) -> None:
    assert not status(replace(here, packages={"openvino": None}), "openvino").expected
    assert status(replace(here, packages={"openvino": "2026.4.1"}), "openvino").expected


def test_mps_needs_macos(here: HardwareInfo) -> None:
    mac = machine(here, CPU, host=replace(here.host, system="Darwin"))
    assert status(mac, "mps").expected
    assert "macOS" in status(machine(here, CPU, host=replace(here.host, system="Linux")), "mps").reason


def test_cpu_memory_is_what_the_control_group_leaves(here: HardwareInfo) -> None:
    limited = replace(here, memory=replace(here.memory, cgroup_limit_bytes=GIB), torch=CPU)
    assert status(limited, "cpu").memory_bytes == GIB


def test_the_simulated_target_says_so(here: HardwareInfo) -> None:
    assert "simulated" in status(machine(here, CPU), "simulated").reason


ANSWERS = {
    "right": known_answer.expected,
    "zeros": lambda: (0.0, 0.0, 0.0),
    "nan": lambda: (float("nan"),) * 3,
}


def probed(monkeypatch: pytest.MonkeyPatch, backend: Any) -> Any:
    monkeypatch.setattr("hardware.backends.factory.get_backend", lambda name: backend)
    return probe("cpu")


def backend_that(answer: Any, unavailable: str = "") -> Any:
    return type("Backend", (), {"unavailable": lambda self: unavailable, "known_answer": lambda self: answer()})()


@pytest.mark.parametrize(("name", "ok"), [("right", True), ("zeros", False), ("nan", False)])
def test_the_probe_believes_numbers_only(monkeypatch: pytest.MonkeyPatch, name: str, ok: bool) -> None:
    result = probed(monkeypatch, backend_that(ANSWERS[name]))
    assert result.ok is ok
    assert result.got is not None
    assert bool(result.reason) is not ok


def test_a_probe_keeps_the_reason_of_whatever_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash() -> None:
        raise RuntimeError("CUDA error: device lost")

    def refuse() -> None:
        raise BackendUnavailable("cuda isn't usable", why="no driver")

    assert "device lost" in probed(monkeypatch, backend_that(crash)).reason
    assert "no driver" in probed(monkeypatch, backend_that(refuse)).reason
    absent = probed(monkeypatch, backend_that(crash, unavailable="no device"))
    assert (absent.ok, absent.reason, absent.got) == (False, "no device", None)


def test_probing_an_unknown_target_is_an_error() -> None:
    with pytest.raises(UsageError, match="cuda"):
        probe("cudda")


def test_the_known_answer_survives_half_precision_and_nothing_else() -> None:
    import numpy as np

    left, right = known_answer.question()
    half = np.tanh(left.astype(np.float16) @ right.astype(np.float16)).sum(axis=0)[:3]
    assert left.dtype == right.dtype == np.float32
    assert known_answer.agrees([float(value) for value in half])
    assert not known_answer.agrees([float(value) for value in (left @ right).sum(axis=0)[:3]])
    assert not known_answer.agrees([float(value) for value in np.tanh(right @ left).sum(axis=0)[:3]])


def test_the_table_fits_80_columns_and_names_every_target(here: HardwareInfo) -> None:
    odd = replace(H200, model="NVIDIA \x1b[31mH200" + " long" * 30)
    text = list_text(machine(here, CUDA, odd))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert all(f"  {name} " in text for name in known_targets())
    for word in ("Make:", "Sockets:", "Boost frequency:", "Compute:", "PCIe generation:", "Driver version:"):
        assert word in text


def test_json_list_has_the_published_shape_with_targets() -> None:
    result = CliRunner().invoke(main, ["list", "--format", "json"])
    assert result.exit_code == 0
    data = json.loads(result.output)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert [one["target"] for one in data["targets"]] == list(known_targets())


def test_markdown_list_is_written_to_a_file(tmp_path: Path, here: HardwareInfo) -> None:
    path = tmp_path / "list.md"
    result = CliRunner().invoke(main, ["list", "--format", "markdown", "--output", str(path)])
    assert (result.exit_code, result.output) == (0, "")
    assert "| cpu | " in path.read_text()
    assert "\\|" in list_text(machine(here, CUDA, replace(H200, model="A|B")), "markdown")


def test_an_output_that_cannot_be_written_is_one_line_and_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["list", "--output", str(tmp_path / "no" / "file")]
    assert open_door(main, arguments, program="python -m hardware") == 4
    assert capsys.readouterr().err.startswith("error: can't write")


def test_an_unknown_format_is_refused(here: HardwareInfo) -> None:
    assert CliRunner().invoke(main, ["list", "--format", "xml"]).exit_code != 0
    with pytest.raises(UsageError, match="markdown"):
        list_text(here, "markdwon")
