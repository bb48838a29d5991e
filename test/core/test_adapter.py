"""Which device fits, with figures that have a source, and reasons for all that don't."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from recorded_machines import FIXTURES, machine

from hardware.command_names import command_of
from hardware.detection import HardwareInfo, detect
from hardware.errors import UsageError
from hardware.files import cache_folder
from hardware.software import TorchBuild
from hardware.target import HardwareVendor, vendor_named
from hwcompat.cli.device_commands import devices_group as main
from hwcompat.plugins.placement.adapter import GB, HardwareAdapter, auto_detect_best_adapter, why_not
from hwcompat.plugins.placement.placement_device import Device, Figure, devices_of, known_devices
from hwcompat.plugins.placement.placement_text import capabilities_text, choice_text
from hwcompat.plugins.placement.saved_rates import read_rates, save_rates
from hwcompat.plugins.stress.limits import accelerator_limit
from hwcompat.plugins.stress.stress_result import Bandwidth, DeviceResult, Rate, StressEnding, StressRun

CUDA = TorchBuild(version="2.13.0+cu128", cuda="12.8")
KEPT = {
    **{"schema_version": 1, "target": "cpu", "device_name": "d", "date": "", "torch": "", "driver": ""},
    **{"tflops": {}, "bandwidth_gbps": None},
}
ROCM = TorchBuild(version="2.13.0+rocm6.4", hip="6.4")


def inventory(name: str, torch: TorchBuild = CUDA) -> HardwareInfo:
    """A recorded machine with a build of torch."""
    return replace(detect(machine(name)), torch=torch)


def adapter(name: str, torch: TorchBuild = CUDA, *, hal: bool = True) -> HardwareAdapter:
    return HardwareAdapter(enable_hal=hal, inventory=inventory(name, torch))


def test_the_flagship_call_names_a_device_with_sourced_figures():
    found = adapter("nvidia/h100-x8").get_optimal_device_hal(40, 20, ["nvidia", "amd"])
    assert found
    assert (found.vendor, found.device_string) == (HardwareVendor.NVIDIA, "cuda:0")
    assert found.capabilities is not None
    assert found.capabilities.device_name == "NVIDIA H100 80GB HBM3"
    assert found.capabilities.tflops["float32"].value == 66.9
    assert "whitepaper" in found.capabilities.tflops["float32"].source
    assert len(found.reasons) == 8, "seven more and the processor"
    older = adapter("nvidia/h100-x8", hal=False)
    assert older.get_optimal_device_placement(40, 20, "nvidia") == [f"cuda:{n}" for n in range(8)]
    assert older.get_optimal_device_placement(10_000, 1) == []


def test_rocm_gives_amd_and_torchs_name_for_it():
    found = adapter("amd/mi300x-x2", ROCM).get_optimal_device_hal(100, 0, ["amd"])
    assert found.vendor is HardwareVendor.AMD
    assert found.device is not None
    assert (found.device.target, found.device_string) == ("rocm", "cuda:0")
    other = adapter("amd/mi300x-x2", CUDA)
    wrong = other.get_optimal_device_hal(100, 0, ["amd"])
    assert wrong.device is None or wrong.device.target == "cpu"
    assert "unusable" in wrong.reasons["rocm:0"]
    assert (other.is_hal_enabled(), {one.target for one in other.discover_devices()}) == (True, {"cpu", "rocm"})
    own = adapter("amd/mi300x-x2", CUDA, hal=False)
    assert (own.is_hal_enabled(), {one.target for one in own.discover_devices()}) == (False, {"cpu"})


CHOSEN = {
    "amd/mi300x-container": "rocm",
    "amd/mi300x-x2": "rocm",
    "amd/radeon-and-apu": "rocm",
    "intel/max-1550-x2": "xpu",
    "nvidia/h100-container": "cuda",
    "nvidia/h100-mig": "cuda",
    "nvidia/h100-x8": "cuda",
    "nvidia/workstation": "cuda",
}
"""The target that has 8 GiB and 20 TFLOPS in float32, by recorded machine. No other machine has it: an M3 Max reaches
14 with all cores, and what vendors publish no float32 rate of (TPUs) is `unknown`."""


def test_the_call_of_earlier_systems_on_every_recorded_machine():
    builds = {"rocm": ROCM, "xpu": TorchBuild(version="2.13.0+xpu", xpu="2025.3")}
    for path in sorted(FIXTURES.glob("*/*/machine.json")):
        name = "/".join(path.parts[-3:-1])
        wanted = CHOSEN.get(name, "")
        found = adapter(name, builds.get(wanted, CUDA)).get_optimal_device_hal(8, 20, ["nvidia", "amd", "intel"])
        assert (found.device.target if found.device else "") == wanted, (name, found.reasons)
        assert found or all(found.reasons.values()), name
    xpu = adapter("intel/max-1550-x2", builds["xpu"])
    amd = replace(xpu.inventory, cpu=inventory("amd/mi300x-x2").cpu)
    found = HardwareAdapter(enable_hal=True, inventory=amd).get_optimal_device_hal(8, 0, ["nvidia", "amd", "intel"])
    assert found.vendor is HardwareVendor.INTEL, "not AMD's processor"
    mac = adapter("apple/m3-max", TorchBuild(version="2.13.0"))
    assert mac.get_optimal_device_hal(8, 10, ["nvidia", "amd", "intel"]).vendor is HardwareVendor.APPLE
    assert "9.26 TFLOPS missing (10.7 in float32" in mac.get_optimal_device_hal(8, 20).reasons["mps:0"]


def test_names_of_hardware_match_the_table_as_drivers_and_databases_write_them():
    for name in ("AMD Instinct MI300X OAM", "Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]"):
        assert accelerator_limit(name, "float32").value == 163.4
    for name in (
        "Intel(R) Data Center GPU Max 1550",
        "Intel Corporation Ponte Vecchio XT [Data Center GPU Max 1550]",
    ):
        assert accelerator_limit(name, "float32").value == 52.4
    for name in ("AMD Instinct MI300", "Instinct MI300X VF", "", "NVIDIA"):
        assert accelerator_limit(name, "float32").value is None
    assert "whose number isn't reported" in accelerator_limit("Apple M3 Max", "float32").reason


def test_where_nothing_fits_every_device_says_how_much_is_missing():
    found = adapter("nvidia/h100-x8").get_optimal_device_hal(10_000, 500)
    assert not found
    assert found.vendor is None
    assert found.device_string == ""
    assert set(found.reasons) == {"cpu", *(f"cuda:{n}" for n in range(8))}
    assert "GiB of memory missing" in found.reasons["cuda:3"]
    assert "433 TFLOPS missing (66.9 in float32" in found.reasons["cuda:3"]
    assert "None: no device here has 10000 GiB and 500 TFLOPS" in choice_text(found)


def test_an_unknown_speed_meets_no_requirement():
    device = Device(
        name="cuda:0", target="cuda", memory_total=Figure(value=GB), tflops={"float32": Figure(reason="no table")}
    )
    why = why_not(device, 0, 1, "float32")
    command = command_of("devices", "stress", "cuda:0", "--keep")
    assert why == f"speed in float32 unknown (no table); {command} measures it"
    assert why_not(device, GB, 0, "float32") == ""
    assert "0.5 GiB of memory missing" in why_not(device, 1.5 * GB, 0, "float32")
    assert "unknown: dark" in why_not(replace(device, memory_total=Figure(reason="dark")), 1, 0, "float32")


def test_a_vendor_that_is_preferred_comes_first_and_others_after_it():
    mixed = inventory("nvidia/workstation")
    found = HardwareAdapter(enable_hal=True, inventory=mixed)
    names = {one.vendor for one in found.discover_devices()}
    assert len(names) > 1
    chosen = found.get_optimal_device_hal(0, 0, ["nvidia"])
    assert chosen.vendor is HardwareVendor.NVIDIA
    assert "of a preferred vendor" in chosen.why
    other = found.get_optimal_device_hal(0, 0, [HardwareVendor.INTEL, HardwareVendor.AMD])
    assert other.vendor is HardwareVendor.NVIDIA, "the processor isn't AMD's accelerator"
    assert "cuda:0 is an accelerator" in other.reasons["cpu"]
    assert "no device of the preferred vendor intel or amd found" in other.why
    radeon = replace(mixed, accelerators=inventory("amd/radeon-and-apu").accelerators[:1] + mixed.accelerators)
    both = replace(HardwareAdapter(enable_hal=True, inventory=radeon).discover_devices()[1], unusable="")
    assert (both.target, both.vendor) == ("rocm", "AMD")
    absent = found.get_optimal_device_hal(0, 0, [HardwareVendor.GROQ])
    assert absent.device is not None
    assert "no device of the preferred vendor groq found" in absent.why


def test_capabilities_of_all_vendors_invent_nothing_and_count_shared_memory_once():
    found = adapter("nvidia/h100-x8").get_cross_vendor_capabilities()
    assert found["cross_vendor_devices"] == 9
    assert found["vendor_distribution"]["nvidia"] == 8
    assert found["hal_enabled"] is True
    assert found["available_memory_gb"] > 8 * 79
    assert not any("utilization" in key for key in found), "it isn't measured"
    shared = adapter("nvidia/gb10")
    memory = shared.inventory.memory.usable_bytes
    assert memory is not None
    assert shared.get_cross_vendor_capabilities()["available_memory_gb"] == pytest.approx(memory / GB, abs=0.1)


def test_the_best_adapter_spans_vendors_only_if_several_can_be_used():
    assert not auto_detect_best_adapter(inventory("nvidia/h100-x8")).is_hal_enabled()
    assert not auto_detect_best_adapter(inventory("amd/mi300x-x2", CUDA)).is_hal_enabled()
    devices = {one.name: one for one in devices_of(inventory("amd/mi300x-denied", ROCM))}
    assert devices["rocm:0"].unusable


def test_requirements_that_make_no_sense_are_refused():
    assert vendor_named(" NVIDIA ") is HardwareVendor.NVIDIA
    with pytest.raises(UsageError, match="Did you mean 'nvidia'"):
        vendor_named("nvidai")
    found = adapter("nvidia/h100-x8")
    for memory, compute, precision, words in (
        (float("nan"), 1, "float32", "a valid requirement of memory"),
        (1, -1, "float32", "a valid requirement of compute"),
        (1, 1, "float99", "rates have no precision"),
    ):
        with pytest.raises(UsageError, match=words):
            found.get_optimal_device_hal(memory, compute, precision=precision)


def run(*results: DeviceResult, torch: str = "2.13.0+cpu") -> StressRun:
    return StressRun(
        started_at="2026-11-24T10:00:00+00:00", host={}, versions={"torch": torch}, interval_s=1.0, results=results
    )


def result(target: str, **changes: object) -> DeviceResult:
    rates = (Rate(precision="float32", tflops=0.25), Rate(precision="int8", reason="no kernel"))
    told = {"target": target, "ending": StressEnding.MEASURED, "device_name": "x", "rates": rates, **changes}
    return DeviceResult(**told)  # type: ignore[arg-type]


def test_what_stress_measured_is_kept_and_goes_before_tables(tmp_path):
    here = inventory("nvidia/h100-x8", TorchBuild(version="2.13.0+cpu"))
    memory = result(
        "ram", rates=(), bandwidths=(Bandwidth(kernel="triad", gbps=9.0), Bandwidth(kernel="copy", gbps=11.0))
    )
    assert len(save_rates(run(result("cpu"), memory, result("cuda:1")), known_devices(here))) == 3
    devices = {one.name: one for one in devices_of(here, free=lambda _: 5 * GB)}
    assert devices["cpu"].tflops["float32"] == Figure(value=0.25, source="measured by stress on 2026-11-24")
    assert devices["cpu"].bandwidth_gbps.value == 11.0
    assert devices["cuda:1"].tflops["float32"].value == 0.25
    assert devices["cuda:0"].tflops["float32"].value == 66.9, "nobody measured that one"
    assert devices["cuda:0"].memory_free == Figure(value=5.0 * GB, source="its driver, now")
    assert "stress didn't measure it" in devices["cpu"].tflops["int8"].reason
    away = {one.name: one for one in devices_of(here, label="lab1")}
    assert away["lab1/cpu"].tflops["float32"].source != "measured by stress on 2026-11-24", "another machine's"
    assert "only the machine itself" in away["lab1/cuda:0"].memory_free.reason


def test_rates_of_another_torch_or_of_a_wrong_or_simulated_run_do_not_count():
    here = inventory("nvidia/h100-x8", TorchBuild(version="2.13.0+cpu"))
    wrong = result("cpu", ending=StressEnding.WRONG_RESULT)
    assert save_rates(run(wrong, result("cuda:0", simulated=True), result("nobody:7")), known_devices(here)) == ()
    save_rates(run(result("cpu"), torch="2.12.0"), known_devices(here))
    cpu = devices_of(here, free=lambda _: None)[0]
    assert cpu.tflops["float32"].source != "measured by stress on 2026-11-24"
    assert "torch changed from 2.12.0 to 2.13.0+cpu" in cpu.tflops["float32"].reason


def test_a_broken_file_of_rates_is_a_reason_and_no_figure():
    here = inventory("nvidia/h100-x8")
    (path,) = save_rates(run(result("cpu")), known_devices(here))
    assert cache_folder("rates") in path.parents
    for text in (
        *("", "[]", "{}", "null", "{" * 500, '{"schema_version": 1}'),
        json.dumps(KEPT | {"schema_version": 2}),
        json.dumps(KEPT | {"tflops": {"float32": float("nan")}}),
        json.dumps(KEPT | {"tflops": {"float32": -1}}),
        json.dumps(KEPT | {"tflops": {"float32": True}}),
        json.dumps(KEPT | {"target": 3, "bandwidth_gbps": 1e99}),
    ):
        path.write_text(text)
        kept, why = read_rates("cpu", here.cpu.model)
        assert kept is None
        assert "can't be read" in why
    assert "can't be read" in devices_of(here, free=lambda _: None)[0].tflops["int8"].reason


def test_every_figure_of_the_table_has_its_source_or_reason():
    text = capabilities_text(devices_of(inventory("nvidia/h100-x8")))
    assert "NVIDIA H100 80GB HBM3" in text
    assert "  TFLOPS float32: NVIDIA H100 Tensor Core GPU Architecture" in text
    figures = [line for line in text.splitlines() if line.startswith("  ")]
    assert all(not line.rstrip().endswith(":") for line in figures)
    for name in ("nvidia/h100-x8", "amd/mi300x-x2"):
        found = adapter(name)
        shown = capabilities_text(found.discover_devices()) + choice_text(found.get_optimal_device_hal(4000, 20))
        assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_the_commands_answer_with_exit_codes():
    runner = CliRunner()
    fits = runner.invoke(main, ["fit", "--memory-gb", "0.1", "--format", "json"], standalone_mode=False)
    assert fits.return_value == 0
    assert json.loads(fits.stdout)["device"] == "cpu"
    none = runner.invoke(main, ["fit", "--memory-gb", "1e6"], standalone_mode=False)
    assert none.return_value == 1
    assert "missing" in none.stdout
