"""Sixteen threads read the metrics of eight devices at once: every figure is the right device's own.

Half a second here; `make test-threads` reads for a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stub_libraries import amdsmi, nvml

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("THREAD_SECONDS", "0.5"))

READ = """
import json, threading, time
from collections import Counter
from hardware.inventory.vendors.{module} import {kind}
backend = {kind}()
end = time.monotonic() + {seconds}
wrong, reads, lock = Counter(), Counter(), threading.Lock()

def read(start):
    mine, faults, index = Counter(), Counter(), start
    while time.monotonic() < end:
        index = (index + 3) % 8
        told = [backend.get_temperature(index) - 40, backend.get_power_usage(index) - {watts},
                backend.get_memory_usage(index)["used"] / 2**30 - 1,
                backend.get_utilization(index)["compute"] - 30, backend.get_utilization(index)["memory"] - 5]
        mine[index] += 1
        if any(value != index for value in told):
            faults[index] += 1
    with lock:
        wrong.update(faults); reads.update(mine)

threads = [threading.Thread(target=read, args=(start,)) for start in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([sum(wrong.values()), [reads[index] for index in range(8)], threading.active_count()]))
"""


@pytest.mark.parametrize(
    ("build", "module", "kind", "watts"),
    [
        (nvml, "nvidia", "NvidiaAccelerators", 100),
        (amdsmi, "amd", "AmdAccelerators", 200),
    ],
    ids=["nvidia", "amd"],
)
def test_sixteen_threads_never_read_another_device(tmp_path, build, module, kind, watts):
    folder = build(tmp_path)  # type: ignore[operator]
    done = subprocess.run(
        [sys.executable, "-c", READ.format(module=module, kind=kind, watts=watts, seconds=SECONDS)],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder), "SIM_NVML_COUNT": "8", "SIM_AMDSMI_COUNT": "8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + 2 * SECONDS,
    )
    assert done.returncode == 0, done.stderr
    wrong, reads, left = json.loads(done.stdout)
    print(f"{module}: {sum(reads)} rounds of reading, {wrong} wrong")
    assert wrong == 0
    assert all(reads)
    assert left == 1
