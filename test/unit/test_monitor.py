"""The monitor: lines of JSON over a pipe, a table on a terminal, and an end in order."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import stub_libraries
from rich.console import Console

from hardware.errors import UsageError
from hardware.inventory.system.processor_telemetry import CpuTelemetry
from hardware.inventory.telemetry import DeviceSample, HostSample, Sample
from hwcompat.plugins.stress.monitor import View, chosen_format, sparkline

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stub_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_libraries.nvml(tmp_path_factory.mktemp("nvml-monitor"))


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hardware", "monitor", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_over_a_pipe_every_look_is_a_line_and_a_device_that_is_lost_ends_nothing(stub_nvml: Path) -> None:
    process = start(
        *("--count", "8", "--interval", "0.05"),
        LD_LIBRARY_PATH=str(stub_nvml),
        SIM_NVML_COUNT="2",
        SIM_NVML_LOST="1:60",
        SIM_NVML_REASONS="68",
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    samples = [json.loads(line) for line in out.splitlines()]
    assert len(samples) == 8
    first, last = samples[0]["devices"], samples[-1]["devices"]
    assert [one["temperature_c"] for one in first] == [40.0, 41.0]
    assert first[0]["throttle_reasons"] == ["sw_power_cap", "thermal"]
    assert first[1]["memory_used_bytes"] == 2 * 2**30
    assert last[0]["power_w"] == 100.0
    assert last[1]["power_w"] is None
    assert "lost" in last[1]["reason"]


def test_ctrl_c_ends_it_in_order() -> None:
    process = start("--format", "json", "--interval", "0.1")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["host"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    with start("--format", "json", "--interval", "0.05") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


def test_a_duration_ends_it() -> None:
    process = start("--duration", "0.2", "--interval", "0.1")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(out.splitlines()) in (1, 2)  # a busy machine takes fewer


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


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_the_terminal_and_holds_every_metric(width: int) -> None:
    view = View()
    view.add(sample(device(0, **BUSY), device(1, reason="nvmlDeviceGetName: GPU is lost")))
    lines = shown(view, width)
    assert all(len(line) <= width for line in lines)
    (row,) = (line for line in lines if line.strip().startswith("NVIDIA 0"))
    assert all(part in row for part in ("71 °C", "97 %", "61.0/80 GiB", "688 W", "sw_power_cap"))
    (lost,) = (line for line in lines if line.strip().startswith("NVIDIA 1 "))
    assert "silent" in lost
    assert "NVIDIA 1: nvmlDeviceGetName: GPU is lost" in lines
    (cpu,) = (line for line in lines if line.strip().startswith("cpu"))
    assert all(part in cpu for part in ("91 °C", "100 %", "thermal"))
    (ram,) = (line for line in lines if line.strip().startswith("ram"))
    assert "6.0/24 GiB" in ram


def test_devices_that_have_no_room_are_counted() -> None:
    view = View()
    view.add(sample(*(device(index, **BUSY) for index in range(8))))
    lines = shown(view, 80, height=12)
    assert sum(line.strip().startswith("NVIDIA") for line in lines) == 4
    assert any("4 more devices" in line for line in lines)


def test_what_isnt_told_is_a_dash_and_no_zero() -> None:
    view = View()
    view.add(sample(device(0, temperature_c=40.0), memory=None))
    (row,) = (line for line in shown(view, 80) if line.strip().startswith("NVIDIA 0"))
    assert row.count("–") == 4
    assert "0 W" not in row


def test_the_curve_has_a_gap_where_nothing_was_told() -> None:
    assert sparkline([0.0, None, 100.0, 250.0]) == "▁ ██"


def test_the_form_is_that_of_the_stream() -> None:
    assert chosen_format("auto", io.StringIO()) == "json"
    assert chosen_format("live", io.StringIO()) == "live"


def test_without_rich_the_view_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwcompat.plugins.stress.monitor.is_installed", lambda name: name != "rich")
    with pytest.raises(UsageError, match="pip install rich"):
        chosen_format("live", io.StringIO())


def test_a_terminal_shows_the_view_and_keeps_the_last_look(tmp_path: Path) -> None:
    import pty

    primary, secondary = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    words = [sys.executable, "-m", "hardware", "monitor", "--interval", "0.1"]
    process = subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True
    )
    os.close(secondary)
    said = b""
    until = time.monotonic() + 60
    while b"ram" not in said and time.monotonic() < until:
        said += os.read(primary, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(primary, 4096):
            said += chunk
    except OSError:  # the terminal's other end is closed
        pass
    os.close(primary)
    assert process.wait(timeout=60) == 0
    text = said.decode(errors="replace")
    assert "\x1b[?1049h" in text  # a screen of its own …
    assert "Throttled" in text.rpartition("\x1b[?1049l")[2]  # … and the last look after it
    assert "Traceback" not in text
