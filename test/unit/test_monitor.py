"""The monitor: lines of JSON over a pipe, a table on a terminal, and an end in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stub_libraries

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


def test_over_a_pipe_every_look_is_a_line_and_a_device_that_is_lost_ends_nothing(stub_nvml):
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


def test_a_reader_that_has_enough_ends_it_quietly():
    with start("--format", "json", "--interval", "0.05") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


def test_a_terminal_shows_the_view_and_keeps_the_last_look(tmp_path):
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
