"""What the inventory says of recorded machines with GPUs of NVIDIA, AMD and Intel, and the confusions it avoids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hardware.detection import HardwareInfo, detect, targets
from hardware.errors import UsageError
from hardware.inventory.vendors._visibility import visible
from hardware.inventory.vendors.amd import AmdAccelerators
from hardware.inventory.vendors.intel import IntelAccelerators
from hardware.inventory.vendors.intel import throttle_reasons as intel_throttle_reasons
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
from hardware.inventory.vendors.vendor import AcceleratorBackend
from hardware.recording import INDEX, ReplayedMachine

FIXTURES = Path(__file__).parents[1] / "fixtures"
VENDORS = {"nvidia": NvidiaAccelerators, "amd": AmdAccelerators, "intel": IntelAccelerators}
MACHINES = sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in FIXTURES.glob(f"*/*/{INDEX}"))
GPUS = [name for name in MACHINES if name.partition("/")[0] in VENDORS]


def backend(name: str, folder: Path = FIXTURES) -> AcceleratorBackend:
    kind: Any = VENDORS[name.partition("/")[0]]
    found: AcceleratorBackend = kind(ReplayedMachine(folder / name))
    return found


def inventory(name: str) -> HardwareInfo:
    return detect(ReplayedMachine(FIXTURES / name))


def target(name: str, wanted: str) -> Any:
    (found,) = [one for one in targets(inventory(name)) if one.target == wanted]
    return found


def changed(tmp_path: Path, name: str, **index: Any) -> AcceleratorBackend:
    """The machine with other entries in its index; a list of variables replaces those of the fixture."""
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)
    data = json.loads((folder / INDEX).read_text())
    data.update(index)
    (folder / INDEX).write_text(json.dumps(data))
    return backend(name, tmp_path)


@pytest.mark.parametrize("name", GPUS)
def test_a_recorded_machine_has_its_source_and_every_device_is_known(name: str) -> None:
    assert len((FIXTURES / name / "SOURCE.md").read_text()) > 80
    found = backend(name)
    devices = found.list_devices()
    assert devices
    assert [one.index for one in devices] == list(range(found.get_device_count()))
    assert all(one.model != "unknown" for one in devices)
    assert all(one.memory_bytes is not None or "reason" in one.extra_info for one in devices)


@pytest.mark.parametrize(
    ("name", "count", "through", "model"),
    [
        ("nvidia/h100-x8", 8, "NVML", "NVIDIA H100 80GB HBM3"),
        ("nvidia/a100-mig", 1, "NVML", "NVIDIA A100-SXM4-40GB"),
        ("amd/mi300x-x2", 2, "sysfs", "Instinct MI300X"),
        ("amd/radeon-and-apu", 2, "sysfs", "7900 XTX"),
        ("amd/apu-laptop", 1, "sysfs", "Phoenix1"),
        ("intel/arc-laptop", 2, "Level Zero", "Arc(TM) A770M"),
        ("intel/max-1550-x2", 2, "sysfs", "Data Center GPU Max 1550"),
        ("intel/core-ultra-laptop", 2, "sysfs, intel_vpu", "Meteor Lake-P"),
    ],
)
def test_each_source_lists_the_devices(name: str, count: int, through: str, model: str) -> None:
    found = backend(name)
    assert found.get_device_count() == count
    assert found.facts().read_through == through
    assert found.facts().state == "expected"
    assert model in found.list_devices()[0].model


@pytest.mark.parametrize(
    ("name", "index", "celsius", "watts", "compute", "reasons"),
    [
        ("nvidia/h100-x8", 3, 64.0, 699.0, 99.0, ("sw_power_cap",)),
        ("nvidia/workstation", 0, 83.0, 448.1, 100.0, ("sw_power_cap", "thermal")),
        ("nvidia/a100-mig", 0, 36.0, 66.92, None, ()),
        ("nvidia/jetson-orin", 0, 44.75, None, 34.5, None),
        ("amd/mi300x-x2", 1, 40.0, 139.0, 0.0, None),
        ("amd/mi300x-container", 1, 42.0, 141.0, 0.0, None),
        ("amd/radeon-and-apu", 0, 41.0, 19.0, 0.0, None),
        ("amd/apu-laptop", 0, 45.0, 9.121, 7.0, None),
        ("intel/arc-laptop", 0, 52.0, 38.5, None, ("thermal",)),
        ("intel/max-1550-x2", 1, None, None, None, ()),
    ],
)
def test_metrics_of_a_device(
    name: str, index: int, celsius: float | None, watts: float | None, compute: float | None, reasons: Any
) -> None:
    found = backend(name)
    assert found.get_temperature(index) == celsius
    assert found.get_power_usage(index) == (None if watts is None else pytest.approx(watts))
    assert (found.get_utilization(index) or {}).get("compute") == compute
    assert found.get_throttle_reasons(index) == reasons


def test_free_memory_is_not_the_total() -> None:
    found = backend("nvidia/workstation")
    memory = found.get_memory_usage(0)
    assert memory == {"total": 24564 << 20, "used": 23000 << 20, "free": 1093 << 20}
    assert found.list_devices()[0].memory_bytes == 24564 << 20


def test_the_carve_out_of_an_apu_is_not_what_a_program_can_have() -> None:
    (laptop,) = backend("amd/apu-laptop").list_devices()
    assert (laptop.memory_bytes, laptop.memory_type, laptop.bus_type) == (16 << 30, "unified", "integrated")
    assert laptop.extra_info["carve_out_bytes"] == 512 << 20
    assert backend("amd/apu-laptop").get_memory_usage(0) == {"total": 16 << 30, "used": 1 << 30, "free": 15 << 30}
    card, inside = backend("amd/radeon-and-apu").list_devices()
    # KFD gives programs the carve-out here: its bank has that size.
    assert (inside.memory_bytes, inside.memory_type) == (512 << 20, "unified")
    assert (card.memory_bytes, card.bus_type) == (25753026560, "pcie")


def test_an_integrated_gpu_beside_a_discrete_one_is_told_from_it() -> None:
    card, inside = backend("intel/arc-laptop").list_devices()
    assert (card.bus_type, card.memory_type, card.pcie_gen) == ("pcie", "GDDR", 4)
    assert (inside.bus_type, inside.memory_type, inside.memory_bytes) == ("integrated", "unified", None)
    assert backend("intel/arc-laptop").get_memory_usage(1) is None
    assert target("intel/arc-laptop", "xpu").memory_bytes == card.memory_bytes


def test_what_one_allocation_can_have_is_not_the_size_of_the_memory() -> None:
    card = backend("intel/arc-laptop").list_devices()[0]
    assert card.memory_bytes == 16225243136
    assert card.extra_info["max_allocation_bytes"] == 2**32 - 8192


@pytest.mark.parametrize("name", ["nvidia/gb10", "nvidia/jetson-orin"])
def test_unified_memory_is_the_machines_and_is_not_counted_twice(name: str) -> None:
    (device,) = backend(name).list_devices()
    assert (device.memory_bytes, device.memory_type, device.bus_type) == (None, "unified", "integrated")
    assert target(name, "cuda").memory_bytes == inventory(name).memory.usable_bytes


@pytest.mark.parametrize("name", ["amd/mi300x-x2", "amd/mi300x-container"])
def test_the_processors_of_kfd_are_no_gpus(name: str) -> None:
    nodes = ReplayedMachine(FIXTURES / name).names("/sys/class/kfd/kfd/topology/nodes") or ()
    assert len(nodes) == len(backend(name).on_bus() or ()) + 2  # type: ignore[attr-defined]
    assert backend(name).get_device_count() == 2


def test_torch_for_rocm_is_not_taken_for_cuda() -> None:
    assert target("amd/mi300x-x2", "rocm").expected
    assert not target("amd/mi300x-x2", "cuda").expected
    assert "built for rocm" in target("amd/mi300x-x2", "cuda").reason
    assert backend("amd/mi300x-x2").get_framework_device_string(0) == "cuda:0"


@pytest.mark.parametrize(
    ("name", "card", "part"),
    [("nvidia/h100-mig", 85520809984, 9984 << 20), ("nvidia/a100-mig", 40960 << 20, 19968 << 20)],
)
def test_a_program_has_the_memory_of_a_slice_not_of_the_card(name: str, card: int, part: int) -> None:
    (device,) = backend(name).list_devices()
    assert device.memory_bytes == card
    assert device.extra_info["mig_enabled"] is True
    assert device.extra_info["mig_1_memory_bytes"] == part
    assert target(name, "cuda").memory_bytes == part


@pytest.mark.parametrize("name", ["nvidia/h100-container", "amd/mi300x-container"])
def test_a_container_with_fewer_devices_than_the_bus_says_so(name: str) -> None:
    facts = backend(name).facts()
    assert (facts.on_bus, facts.state) == (8, "expected")
    assert "the bus shows 8, 2 can be used" in facts.reason
    assert backend(name).get_device_count() == 2


def test_a_container_that_was_given_no_device_says_so(tmp_path: Path) -> None:
    found = changed(tmp_path, "amd/mi300x-container", nodes={"/dev/kfd": True})
    assert not found.is_available()
    assert "given to this container" in found.facts().reason
    assert len(found.list_devices()) == 8
    assert all(one.seen_by == "bus" for one in found.list_devices())


def test_a_user_outside_group_render_is_told_to_join_it() -> None:
    facts = backend("amd/mi300x-denied").facts()
    assert (facts.driver, facts.state) == ("denied", "present but unusable")
    assert "group render" in facts.reason
    rocm = target("amd/mi300x-denied", "rocm")
    assert not rocm.expected
    assert "group render" in rocm.reason


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("nvidia/h100-container", {0: "CUDA_VISIBLE_DEVICES=1"}),
        ("amd/mi300x-container", {0: "ROCR_VISIBLE_DEVICES=1"}),
        ("amd/radeon-and-apu", {1: "ROCR_VISIBLE_DEVICES=0"}),
    ],
)
def test_a_device_that_a_variable_hides_says_so_and_counts_for_no_target(name: str, hidden: dict[int, str]) -> None:
    devices = backend(name).list_devices()
    assert {one.index: one.extra_info["hidden_by"] for one in devices if "hidden_by" in one.extra_info} == hidden
    shown = target(name, "cuda" if name.startswith("nvidia") else "rocm")
    assert "×" not in shown.device_name


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("nvidia/h100-x8", "CUDA_VISIBLE_DEVICES"),
        ("amd/mi300x-x2", "HIP_VISIBLE_DEVICES"),
        ("amd/mi300x-x2", "CUDA_VISIBLE_DEVICES"),
        ("intel/max-1550-x2", "ZE_AFFINITY_MASK"),
    ],
)
def test_each_variable_is_read(tmp_path: Path, name: str, variable: str) -> None:
    devices = changed(tmp_path, name, variables={variable: "1"}).list_devices()
    assert [one.index for one in devices if "hidden_by" not in one.extra_info] == [1]


@pytest.mark.parametrize("name", ["nvidia/workstation", "intel/arc-laptop"])
def test_a_number_that_could_mean_either_of_two_unequal_devices_hides_none_for_sure(name: str) -> None:
    devices = backend(name).list_devices()
    assert all("maybe_hidden_by" in one.extra_info and "hidden_by" not in one.extra_info for one in devices)


def test_the_order_of_the_bus_makes_numbers_certain(tmp_path: Path) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    devices = changed(tmp_path, "nvidia/workstation", variables=variables).list_devices()
    assert ["hidden_by" in one.extra_info for one in devices] == [True, False]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (None, (True, True, True)),
        ("", (False, False, False)),
        ("-1", (False, False, False)),
        ("2,0", (True, False, True)),
        ("0,7,1", (True, False, False)),
        ("GPU-bb", (False, True, False)),
        ("gpu-bb11,2", (False, True, True)),
        ("GPU-", (False, False, False)),
        ("1.0,1.1", (False, True, False)),
        ("²", (False, False, False)),
        ("9" * 5000, (False, False, False)),
    ],
)
def test_a_list_ends_at_its_first_entry_that_means_nothing(text: str | None, left: tuple[bool, ...]) -> None:
    assert visible(text, [["GPU-aa00"], ["GPU-bb11"], ["GPU-cc22"]]) == left


def test_an_npu_comes_after_the_gpus_and_has_its_own_names() -> None:
    found = backend("intel/core-ultra-laptop")
    gpu, npu = found.list_devices()
    assert (gpu.device_type, npu.device_type) == ("gpu", "npu")
    assert found.get_framework_device_string(1, "openvino") == "NPU"
    assert found.get_framework_device_string(0) == "xpu:0"
    with pytest.raises(UsageError, match="openvino, onnxruntime"):
        found.get_framework_device_string(1, "pytorch")
    assert found.get_utilization(1) == {"compute": 0.0, "memory": None}


def test_throttling_of_tiles_and_cards_has_names() -> None:
    assert intel_throttle_reasons(0x103) == ("power_limit", "thermal")
    assert intel_throttle_reasons(0x400) == ("unknown_0x400",)


@pytest.mark.parametrize("name", ["nvidia/h100-x8", "amd/mi300x-x2", "intel/arc-laptop", "amd/apu-laptop"])
def test_without_library_and_driver_the_bus_is_left(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name, folder)
    for part in ("commands", "libraries", "files/sys/class", "files/sys/module"):
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / "files" / "sys" / "module" / "ext4").mkdir(parents=True)
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**index, "commands": [], "links": {}, "nodes": {}, "folders": {}}))
    found = backend(name, tmp_path)
    assert not found.is_available()
    facts = found.facts()
    assert (facts.hardware, facts.driver, facts.library) == ("present", "missing", "missing")
    assert facts.read_through == ""
    assert {one.seen_by for one in found.list_devices()} == {"bus"}
    assert found.get_temperature(0) is None


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_machine_without_the_vendor_is_absent_and_no_program_is_started(vendor: str) -> None:
    other = "amd/mi300x-x2" if vendor != "amd" else "nvidia/h100-x8"
    machine = ReplayedMachine(FIXTURES / other)
    started: list[tuple[str, ...]] = []
    asked = machine.run
    machine.run = lambda *words: (started.append(words), asked(*words))[1]  # type: ignore[method-assign]
    kind: Any = VENDORS[vendor]
    found = kind(machine)
    assert found.facts().state == "hardware absent"
    assert found.list_devices() == ()
    assert started == []
