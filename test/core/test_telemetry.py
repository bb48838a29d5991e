"""Samples of a machine: figures of each device, reasons for missing ones, and no driver that delays the others.

The table of the monitor: every metric, in the width and height of the terminal.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import psutil
import pytest
from recorded_machines import computer
from rich.console import Console

from hardware.inventory import telemetry
from hardware.inventory.system.main_memory import Psutil
from hardware.inventory.system.processor_telemetry import CpuTelemetry, CpuTelemetryReader
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample, Sampler
from hardware.inventory.vendors.vendor import AcceleratorBackend, AcceleratorInfo
from hardware.machine import LiveMachine, SourceReading
from hardware.registry import Registered
from hwcompat.plugins.stress.monitor import View, _keys, graph, monitor, samples, sparkline


class Chip(AcceleratorBackend):
    """Two devices whose answers the test chooses."""

    VENDOR_NAME = "Chips"
    DEVICE_TYPE = "npu"
    celsius: float | None = 40.0
    waits: threading.Event | None = None
    raises: Exception | None = None
    why = ""

    def is_available(self) -> bool:
        return True

    def get_device_count(self) -> int:
        return 2

    def list_devices(self) -> tuple[AcceleratorInfo, ...]:
        extra = {"reason": self.why} if self.why else {}
        return tuple(
            AcceleratorInfo(vendor="Chips", device_type="npu", model="Chip", index=index, extra_info=extra)
            for index in range(2)
        )

    def get_temperature(self, index: int) -> float | None:
        if self.waits is not None:
            self.waits.wait(30)
        if self.raises is not None:
            raise self.raises
        return None if self.celsius is None else self.celsius + index


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> type[Chip]:
    kind = type("Chip", (Chip,), {})
    registered = Registered(found={"chip": kind}, failures={"other": "ImportError: no such library"})
    monkeypatch.setattr(telemetry, "registered_vendors", lambda: registered)
    return kind


@pytest.fixture
def sampler(chip: type[Chip]) -> Iterator[Sampler]:
    """A sampler of the two devices and of a recorded processor."""
    made = Sampler(computer("vm-virtio"))
    yield made
    made.close()


def test_each_device_has_its_own_figures_and_a_sample_obeys_its_schema(sampler):
    sample = sampler.sample()
    assert [(one.index, one.temperature_c, one.reason) for one in sample.devices] == [(0, 40.0, ""), (1, 41.0, "")]
    assert sample.devices[0].power_w is None
    assert sample.vendors == {"other": "ImportError: no such library"}
    assert sample.host.memory_total_bytes
    schema = Path(telemetry.__file__).parents[1] / "schemas" / "sample.json"
    jsonschema.validate(json.loads(json.dumps(sample.to_dict())), json.loads(schema.read_text(encoding="utf-8")))


def test_a_device_without_figures_says_why_until_it_has_some_again(chip, sampler):
    chip.celsius, chip.why = None, "fell off the bus"
    assert [one.reason for one in sampler.sample().devices] == ["fell off the bus"] * 2
    chip.raises = OSError("bus error")
    assert {one.reason for one in sampler.sample().devices} == {"OSError: bus error"}
    chip.celsius, chip.raises = 50.0, None
    assert [(one.temperature_c, one.reason) for one in sampler.sample().devices] == [(50.0, ""), (51.0, "")]


def test_a_driver_that_hangs_delays_no_sample(chip, sampler, monkeypatch):
    monkeypatch.setattr(telemetry, "_LONGEST_WAIT_S", 0.05)
    chip.waits = threading.Event()
    sample = sampler.sample()
    assert all("hasn't answered" in one.reason for one in sample.devices)
    assert sample.host.memory_total_bytes
    chip.waits.set()
    monkeypatch.setattr(telemetry, "_LONGEST_WAIT_S", 30)
    later = [sampler.sample() for _ in range(2)][-1]
    assert [one.temperature_c for one in later.devices] == [40.0, 41.0]


def tree(folder: Path, files: dict[str, Any]) -> LiveMachine:
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return LiveMachine(folder)


def test_use_and_power_are_means_since_the_look_before(tmp_path, monkeypatch):
    zone = "/sys/class/powercap/intel-rapl:0"
    cpus = "/sys/devices/system/cpu/cpu0"
    files = {
        f"{zone}/name": "package-0",
        f"{zone}/energy_uj": 5_000_000,
        f"{zone}/max_energy_range_uj": 10_000_000,
        f"{cpus}/thermal_throttle/core_throttle_count": 7,
    }
    told = {"times": [150, 1160], "frequency": 3100.0, "temperatures": {"nvme": [90.0], "k10temp": [61.25, 40.0]}}
    monkeypatch.setattr(Psutil, "ask", lambda self, function: SourceReading(value=told[function]))
    reader = CpuTelemetryReader(tree(tmp_path, files))
    first = reader.read()
    assert first.compute_percent is None
    assert "second sample" in first.reasons["compute_percent"]
    assert first.temperature_c == pytest.approx(61.2, abs=0.1)
    assert first.frequency_mhz == 3100.0
    told["times"] = [225, 1260]
    tree(tmp_path, {f"{zone}/energy_uj": 1_000_000})
    second = reader.read()
    assert second.compute_percent == 75.0
    assert second.power_w is not None
    assert second.power_w > 0  # the counter went round
    assert second.throttle_reasons == ()
    tree(tmp_path, {f"{cpus}/thermal_throttle/core_throttle_count": 8})
    assert reader.read().throttle_reasons == ("thermal",)


def test_a_counter_for_root_alone_is_a_reason_and_no_zero(tmp_path, monkeypatch):
    machine = tree(tmp_path, {"/sys/class/powercap/intel-rapl:0/name": "package-0"})
    monkeypatch.setattr(psutil, "sensors_temperatures", dict)
    read = CpuTelemetryReader(machine).read()
    assert read.power_w is None
    assert "root" in read.reasons["power_w"]
    assert read.temperature_c is None
    assert "sensor" in read.reasons["temperature_c"]


def sample(*devices: DeviceSample, memory: int | None = 6 * 2**30) -> Sample:
    host = HostSample(
        cpu_model="A processor with quite a long name, as they have",
        cpu=CpuTelemetry(
            compute_percent=100.0, frequency_mhz=2600.0, temperature_c=91.0, throttle_reasons=("thermal",)
        ),
        memory_used_bytes=memory,
        memory_total_bytes=24 * 2**30,
    )
    return Sample(time="2026-01-02T03:04:05.000+00:00", elapsed_s=7.0, host=host, devices=devices)


def device(index: int, **values: Any) -> DeviceSample:
    return DeviceSample(vendor="NVIDIA", index=index, device_type="gpu", model="NVIDIA H100 80GB HBM3", **values)


BUSY: dict[str, Any] = {
    "temperature_c": 71.0,
    "compute_percent": 97.0,
    "memory_used_bytes": 61 * 2**30,
    "memory_total_bytes": 80 * 2**30,
    "power_w": 688.0,
    "throttle_reasons": ("sw_power_cap",),
}


def shown(view: View, width: int, height: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(view.render(width, height))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_fits_the_terminal_and_shows_every_metric(width):
    view = View()
    view.add(sample(device(0, **BUSY), device(1, reason="nvmlDeviceGetName: GPU is lost")))
    lines = shown(view, width)
    assert all(len(line) <= width for line in lines)
    (row,) = (line for line in lines if line.strip().startswith("NVIDIA 0"))
    assert all(part in row for part in ("71 °C", "97 %", "61.0/80 GiB", "688 W", "sw_power_cap"))
    (lost,) = (line for line in lines if line.strip().startswith("NVIDIA 1 "))
    assert "no data" in lost
    assert "NVIDIA 1: nvmlDeviceGetName: GPU is lost" in lines
    (cpu,) = (line for line in lines if line.strip().startswith("cpu"))
    assert all(part in cpu for part in ("91 °C", "100 %", "thermal"))
    (ram,) = (line for line in lines if line.strip().startswith("ram"))
    assert "6.0/24 GiB" in ram


def test_devices_beyond_the_height_are_counted_and_unknown_figures_are_dashes():
    view = View()
    view.add(sample(*(device(index, **BUSY) for index in range(8))))
    lines = shown(view, 80, height=12)
    assert sum(line.strip().startswith("NVIDIA") for line in lines) == 4
    assert any("4 more devices" in line for line in lines)
    view = View()
    view.add(sample(device(0, temperature_c=40.0), memory=None))
    (row,) = (line for line in shown(view, 80) if line.strip().startswith("NVIDIA 0"))
    assert row.count("–") == 4
    assert "0 W" not in row
    assert sparkline([0.0, None, 100.0, 250.0]) == "▁ ██"


@pytest.mark.parametrize("width", [60, 99, 200])
def test_free_rows_have_processes_and_history_and_never_too_many_lines(width: int) -> None:
    view = View()
    for percent in (0.0, 50.0, 100.0):
        busy = BUSY | {"compute_percent": percent, "processes": ((os.getpid(), 60 * 2**30), (2**22 + 1, None))}
        view.add(sample(device(0, **busy)))
    for height in range(10, 40):
        lines = shown(view, width, height)
        assert len(lines) <= height
        assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert f"NVIDIA 0: process {os.getpid()}, " in text
    assert "60.0 GiB" in text
    assert "process 4194305, unknown program, memory unknown" in text
    assert "NVIDIA 0, NVIDIA H100 80GB HBM3: use in the last 3 samples" in text
    assert "100 % │  █" in text
    assert graph([0.0, 50.0, 100.0, None], 2) == ["  █ ", " ██ "]
    view.help = True
    assert "q  stop" in "\n".join(shown(view, width, 40))


def test_q_ends_the_monitor_and_a_question_mark_explains_it() -> None:
    parent, child = pty.openpty()
    script = "import sys; from hwcompat.cli.main_program import main; sys.argv[1:] = ['devices', 'monitor']; main()"
    program = subprocess.Popen([sys.executable, "-c", script], stdin=child, stdout=child, stderr=child)
    os.close(child)
    seen = b""
    for key, words in ((b"?", b"Temp."), (b"q", b"hide this help")):
        while words not in seen:
            assert select.select([parent], [], [], 60)[0], seen
            seen += os.read(parent, 65536)
        os.write(parent, key)
    while program.poll() is None:
        with contextlib.suppress(OSError):
            os.read(parent, 65536)
    assert program.returncode == 0
    os.close(parent)


@pytest.mark.parametrize("end", [None, OSError("hung up")])
def test_the_monitor_runs_without_keys_if_its_input_ends(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    failed: list[object] = []
    read = Mock(return_value=b"", side_effect=end)
    monkeypatch.setattr("threading.excepthook", failed.append)
    with os.fdopen(child) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("os.read", read)
        with _keys(failed.append):
            os.write(parent, b"??\n")
            time.sleep(0.5)
    os.close(parent)
    assert (read.call_count, failed) == (1, []), "it isn't read again"


def test_the_monitor_runs_with_its_input_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    source = FakeSampler()
    monitor(source, iter([sample()]), "live")  # type: ignore[arg-type]
    assert source.closed


class FakeSampler:
    closed = False

    def sample(self) -> Sample:
        return sample()

    def close(self) -> None:
        self.closed = True


def test_samples_end_after_a_count_or_a_duration():
    sampler: Any = FakeSampler()
    assert len(list(samples(sampler, interval_s=0.0, duration_s=None, count=2))) == 2
    assert 1 <= len(list(samples(sampler, interval_s=0.01, duration_s=0.015, count=None))) <= 2  # fewer if busy


@pytest.mark.parametrize("format", ["json", "auto"])
def test_ctrl_c_ends_lines_of_json_in_order(capsys, format):
    def interrupted() -> Iterator[Sample]:
        yield sample()
        raise KeyboardInterrupt

    sampler: Any = FakeSampler()
    monitor(sampler, interrupted(), format)
    assert json.loads(capsys.readouterr().out)["host"]
    assert sampler.closed
