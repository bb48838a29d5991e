"""The table of the monitor: every metric, in the width and height of the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hwcompat.plugins.stress.monitor import View, monitor, samples, sparkline


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
