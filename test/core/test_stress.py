"""Results of stress runs from events and samples, limits of devices, and which devices a name means."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from made_stress import machine, report, summary
from recorded_machines import machine as recorded

from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.inventory.system.main_memory import MemoryInfo
from hardware.inventory.system.processor import CPUInfo
from hardware.inventory.system.storage import StorageDeviceInfo
from hardware.inventory.system.storage.storage_device import with_reasons
from hardware.values import data_file
from hwcompat.plugins.stress import limits
from hwcompat.plugins.stress.loads import PRECISIONS, stream_bytes
from hwcompat.plugins.stress.stress_page import device_view, stress_html
from hwcompat.plugins.stress.stress_report import load_stress, stress_markdown, stress_text
from hwcompat.plugins.stress.stress_result import (
    DeviceResult,
    ProfilePoint,
    StressEnding,
    range_of,
    stability_of,
    throttled_share,
)
from hwcompat.plugins.stress.stress_targets import chosen_devices, rounds
from hwcompat.plugins.stress.tensorflow_device import PYTHON_VARIABLE, why_not_loaded

SCHEMA = json.loads((Path(__file__).parents[2] / "hardware" / "schemas" / "stress.json").read_text(encoding="utf-8"))
HOSTILE = "</svg><script>alert(1)</script>"


def test_stability_and_ranges_are_of_what_was_measured() -> None:
    even = stability_of([100.0] * 8)
    assert (even.coefficient_of_variation, even.sag) == (0.0, 0.0)
    rates = [100.0, 100.0, 95.0, 90.0, 85.0, 80.0, 75.0, 75.0]
    sagging = stability_of(rates)
    assert sagging.sag == 0.25
    assert sagging.coefficient_of_variation == pytest.approx(np.std(rates, ddof=1) / 87.5, abs=1e-4)
    assert stability_of([5.0]).coefficient_of_variation is None
    assert stability_of([]).sag is None

    assert range_of([None, None]) is None
    assert range_of([1.0, None, 3.0]).mean == 2.0  # type: ignore[union-attr]
    points = [ProfilePoint(elapsed_s=0, phase="sustained"), ProfilePoint(elapsed_s=1, phase="sustained")]
    assert throttled_share(points) is None
    reasons = ((), ("thermal",), ("thermal", "x"), ())
    throttled = [ProfilePoint(elapsed_s=0, phase="", throttle_reasons=one) for one in reasons]
    assert throttled_share(throttled) == {"thermal": 0.5, "x": 0.25}


def test_limits_of_accelerators_have_a_source() -> None:
    entries = data_file(limits.FILE)["accelerator"]
    for entry in entries:
        assert entry["source"].strip()
        assert entry["names"]
        assert set(entry) - {"names", "source", "bandwidth", "per"} <= set(PRECISIONS)
        rates = [entry[name] for name in ("float32", "float16", "bfloat16", "int8") if name in entry]
        assert rates == sorted(rates)
        assert rates[0] > 0
        assert 60 <= entry["bandwidth"] <= 10_000
        if "float32" in entry and "per" not in entry:
            least = data_file(limits.FILE)["estimate"]["operations_per_byte"]
            assert entry["float32"] * 1000 / entry["bandwidth"] > least, "what placement takes for an unknown rate"
    names = [name for entry in entries for name in entry["names"]]
    assert len(names) == len(set(names))
    assert limits.accelerator_limit("NVIDIA H100 80GB HBM3", "bfloat16").value == 989.4
    assert limits.accelerator_limit("Tesla T4", "bfloat16").value is None
    unknown = limits.accelerator_limit("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "float32")
    assert (unknown.value, unknown.fraction(5.0)) == (None, None)
    assert unknown.reason


def test_limits_of_the_host_are_computed_from_what_it_reports() -> None:
    cpu = CPUInfo(
        vendor="Intel", cores=4, usable_threads=8, boost_frequency_mhz=3000, instruction_sets=("AVX2", "AVX-512")
    )
    limit = limits.processor_limit(cpu, "float32")
    assert limit.value == pytest.approx(64 * 4 * 3e9 / 1e12)
    assert all(part in limit.source for part in ("AVX-512", "4 cores", "3000 MHz", "boost"))
    assert limit.fraction(0.384) == 0.5
    half = limits.processor_limit(replace(cpu, usable_threads=2), "float32")
    assert half.value == pytest.approx(limit.value / 2)  # type: ignore[operator]
    current = replace(cpu, boost_frequency_mhz=None, current_frequency_mhz=2000.0)
    assert "may be exceeded" in limits.processor_limit(current, "float32").source
    for unknown in ({"cores": None}, {"vendor": "AMD"}, {"boost_frequency_mhz": None}, {"instruction_sets": ()}):
        nothing = limits.processor_limit(replace(cpu, **unknown), "float32")
        assert nothing.value is None
        assert nothing.reason
    assert limits.processor_limit(cpu, "int8").value is None

    memory = MemoryInfo(total_bytes=1, available_bytes=1, swap_total_bytes=0, swap_free_bytes=0)
    assert limits.memory_limit(replace(memory, speed_mts=4800, channels=8)).value == pytest.approx(307.2)
    assert limits.memory_limit(memory).value is None
    assert stream_bytes(2**30, 2**40) == (2**32, "")
    assert stream_bytes(2**20, 2**40) == (2**27, "")
    size, remark = stream_bytes(2**30, 2**33)
    assert size == 2**30
    assert "less than four times" in remark


# Which devices a name means


def test_a_name_without_an_index_means_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    chosen = chosen_devices(["cuda", "ram", "cpu"], machine())
    assert [one.target for one in chosen] == ["cuda:0", "cuda:1", "ram", "cpu"]
    assert [[one.target for one in together] for together in rounds(chosen)] == [
        ["ram"],
        ["cpu"],
        ["cuda:0", "cuda:1"],
    ]
    assert [one.target for one in chosen_devices(["nvidia:1"], machine())] == ["cuda:1"]
    assert [one.target for one in chosen_devices(["cuda"], machine(count=1))] == ["cuda"]


def test_disks_are_tested_by_name_one_after_the_other_and_never_as_part_of_all() -> None:
    disks = tuple(with_reasons(StorageDeviceInfo(device_path=path)) for path in ("/dev/zz0", "/dev/zz1", "nas:/x"))
    here = replace(machine(), storage=disks)
    chosen = chosen_devices(["storage"], here)
    assert [one.target for one in chosen] == ["storage:zz0", "storage:zz1"]
    assert all(one.reason for one in chosen), "these disks don't exist"
    assert [one.target for one in chosen_devices(["storage:zz1"], here)] == ["storage:zz1"]
    (unwritable,) = chosen_devices(["storage:zz1"], here, writes=True)
    assert unwritable.reason == "no folder on it is writable"
    with pytest.raises(UsageError, match="isn't a disk of this machine"):
        chosen_devices(["storage:zz2"], here)
    assert not any(one.target.startswith("storage") for one in chosen_devices(["all"], here))
    assert chosen_devices(["storage"], replace(here, storage=()))[0].reason == "no disk was found"


def test_tensorflow_is_used_where_it_is_installed_and_only_on_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    monkeypatch.setenv(PYTHON_VARIABLE, str(python))
    assert "isn't installed" in why_not_loaded("cpu")
    python.touch()
    assert why_not_loaded("cuda:1") == ""
    assert why_not_loaded("simulated") == "TensorFlow has no device for simulated"


def test_an_absent_device_is_skipped_and_one_without_a_load_is_refused() -> None:
    without_cuda = machine(torch_kind="cpu")
    (absent,) = chosen_devices(["cuda:0"], without_cuda)
    assert "built for cpu" in absent.reason
    assert absent.named
    assert rounds([absent]) == []
    of_all = {one.target: one for one in chosen_devices(["all"], without_cuda)}
    assert "simulated" not in of_all
    assert not of_all["cuda"].named
    assert not of_all["cpu"].reason
    assert {one.target: one.named for one in chosen_devices(["all", "cuda"], without_cuda)}["cuda"]
    for name in ("openvino", "qnn", "Groq", "cerebras"):
        (without,) = chosen_devices([name], detect(recorded("groq/groqnode")))
        assert without.reason.startswith("no load: a stress test computes with torch or JAX")
        assert f"know no device {name.lower()}" in without.reason
        assert rounds([without]) == []
    for name in ("gpuu", "cpu:0", "ram:1", "cuda:x", "", "cuda:-1"):
        with pytest.raises(UsageError, match="Known: ram, storage, cpu, cuda"):
            chosen_devices([name], machine())


# What events and samples become


def test_rates_and_samples_become_a_result() -> None:
    result = summary()
    assert (result.sustained, result.tflops, result.gflops_per_watt) == ("float32", 40.0, 100.0)
    assert result.rates[0].limit_fraction == pytest.approx(40 / 66.9, abs=1e-4)
    assert result.rates[1].reason == "it has none"
    assert result.bandwidths[0].gbps == pytest.approx(2147, abs=1)
    assert result.bandwidths[0].limit.value == 3352
    assert result.stability is not None
    assert result.stability.coefficient_of_variation == 0.0
    assert result.processor_share is None
    # Telemetry is that of the device with the same identity under sustained load.
    assert result.power_w is not None
    assert result.power_w.mean == 400.0
    assert result.temperature_c is not None
    assert (result.temperature_c.least, result.temperature_c.most) == (53.0, 55.0)
    assert result.throttled == {"thermal": pytest.approx(2 / 3, abs=1e-3)}
    assert [(one.elapsed_s, one.phase, one.rate) for one in result.profile] == [
        (1.0, "warm-up", None),
        (3.0, "sustained", 40.0),
        (4.0, "sustained", 40.0),
        (5.0, "sustained", 40.0),
        (6.9, "short", 2000.0),
    ]


def test_wrong_numbers_have_no_rate_and_missing_telemetry_has_a_reason() -> None:
    result = summary(StressEnding.WRONG_RESULT, "off by 3")
    assert (result.tflops, result.rates, result.gflops_per_watt) == (None, (), None)
    assert "off by 3" in stress_text(report(result))
    result = summary(target="xpu", devices=[])
    assert result.power_w is None
    assert "no driver reports telemetry of a" in result.telemetry_reasons["all"]
    assert "Intel device" in result.telemetry_reasons["all"]
    assert "unknown: no driver" in stress_text(report(result))


def test_the_table_fits_80_columns_and_the_object_its_schema() -> None:
    skipped = DeviceResult(target="rocm", ending=StressEnding.SKIPPED, reason="no AMD GPU is on the bus")
    found = report(summary(), skipped)
    text = stress_text(found)
    assert all(len(line) <= 80 for line in text.splitlines())
    for part in ("40 TFLOPS in float32", "thermal in 67 % of samples", "skipped: no AMD GPU"):
        assert part in text
    jsonschema.validate(found, SCHEMA)


def test_the_page_draws_rate_heat_power_and_marks_throttling(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(report(summary())))
    page, view = stress_html(load_stress(file)), device_view(load_stress(file)["results"][0])
    assert [one["label"].partition(",")[0] for one in view["curves"]] == ["Rate", "Temperature", "Power"]
    assert float(view["curves"][0]["most"]) == 40.0  # the copy's 2000 is another unit
    assert len(view["throttled"]) == 2
    assert [name for name, _, _ in view["phases"]] == ["warm-up", "sustained", "short"]
    assert (page.count("<svg"), page.count('class="throttled"')) == (3, 6)
    assert "Not reported by the device: use." in page
    assert "40 TFLOPS" in stress_markdown(load_stress(file))

    hostile = json.loads(file.read_text().replace("NVIDIA H100 80GB HBM3", HOSTILE))
    hostile["results"][0]["telemetry_reasons"] = {"all": HOSTILE}
    file.write_text(json.dumps(hostile))
    assert "<script>alert" not in stress_html(load_stress(file))
    assert "<script>" not in stress_markdown(load_stress(file))
    for text, told in (
        ("", "devices stress"),
        ("{}", "devices stress"),
        ("[1]", "devices stress"),
        ('{"schema_version": 2}', "version 2"),
    ):
        file.write_text(text)
        with pytest.raises(BrokenInput, match=told):
            load_stress(file)
