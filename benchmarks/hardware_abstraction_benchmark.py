"""Measure the overhead of the vendor adapter against direct calls in the same run.

Detecting devices, choosing the best one, moving a tensor and multiplying: each by our API and by torch's, in turns.
Prints ratios of medians; `--quick` takes few runs, `--output FILE.json` stores them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.side_by_side.processes import timed
from hardware.backends.factory import get_backend
from hardware.detection import detect
from hwcompat.plugins.placement.adapter import HardwareAdapter


def _torch_devices() -> list[str]:
    import torch

    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]


def pairs(size: int) -> Mapping[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return the compared calls by name: ours, and the direct one."""
    import psutil
    import torch

    adapter = HardwareAdapter(enable_hal=True)
    adapter.discover_devices()
    backend = get_backend("cpu")
    left = torch.randn(size, size)
    return {
        "devices with their figures, and torch's count with free memory": (
            adapter.discover_devices,
            lambda: (_torch_devices(), psutil.virtual_memory().available),
        ),
        "the best device, and the largest of a list": (
            lambda: adapter.get_optimal_device_hal(0.1, 0),
            lambda: max((("cpu", psutil.virtual_memory().available),), key=lambda one: one[1]),
        ),
        "a tensor moved": (lambda: backend.to_device(left), lambda: left.to("cpu")),
        f"a product of {size} x {size} after a move": (
            lambda: backend.to_device(left) @ left,
            lambda: left.to("cpu") @ left,
        ),
        "the inventory of all vendors, and torch's device properties": (detect, _torch_devices),
    }


def main() -> None:
    """Measure in turns, print the ratios and store them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    runs, size = (5, 128) if options.quick else (31, 512)
    found = {}
    for name, (ours, direct) in pairs(size).items():
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(runs + 1):
            for place, call in enumerate((ours, direct)):
                seconds = timed(call)
                if number:  # The first round is a warm-up.
                    taken[place].append(seconds)
        mine, theirs = map(statistics.median, taken)
        found[name] = {"ours_ms": 1000 * mine, "direct_ms": 1000 * theirs, "ratio": mine / theirs}
        print(f"{name}: {1000 * mine:.3f} ms, direct {1000 * theirs:.3f} ms, ratio {mine / theirs:.2f}")
    if options.output:
        options.output.write_text(json.dumps({"runs": runs, "pairs": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
