"""Devices of all vendors behind one question: `python examples/multi_vendor_demo.py [--replay DIR] [--output FILE]`.

Lists devices with where each figure is from, asks for the best device for three needs, and places four workloads.
Without `--replay` it is this machine; with it, machines that were recorded (`python -m hardware doctor --record DIR`
records one), as `test/fixtures/nvidia/h100-x8` is. Nothing is invented: a figure that nobody knows is unknown, and a
need that no device meets has every device's reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hwcompat.hardware.detection import detect
from hwcompat.hardware.recording import ReplayedMachine
from hwcompat.plugins.placement.adapter import HardwareAdapter
from hwcompat.plugins.placement.place import place
from hwcompat.plugins.placement.placement_device import Device, Figure
from hwcompat.plugins.placement.placement_text import capabilities_text, choice_dict, choice_text
from hwcompat.plugins.placement.workloads import Placement, Workload

GIB = 2**30
NEEDS = ((8.0, 0.0, ("nvidia", "amd")), (100.0, 0.0, ("amd",)), (40.0, 500.0, ()))
"""GiB, TFLOPS in float32, vendors that are preferred."""

WORKLOADS = {
    "classifier": (0.5, 0.2),
    "encoder": (2.0, 1.0),
    "generator": (14.0, 28.0),
    "large generator": (140.0, 280.0),
}
"""GiB, and 10^12 operations of a pass."""


def machines(folders: list[Path]) -> dict[str, HardwareAdapter]:
    """An adapter for each recorded machine, or one for this machine."""
    if not folders:
        return {"here": HardwareAdapter(enable_hal=True)}
    return {path.name: HardwareAdapter(enable_hal=True, inventory=detect(ReplayedMachine(path))) for path in folders}


def placed(devices: list[Device]) -> Placement:
    """The workloads on the devices. The duration of a pass is estimated if the device's speed has a source."""
    workloads = []
    for name, (gib, operations) in WORKLOADS.items():
        seconds = {}
        for one in devices:
            speed = one.tflops.get("float32", Figure())
            if speed.value:
                seconds[one.name] = Figure(value=operations / speed.value, source=f"lower bound: {speed.source}")
        forbidden = {one.name: f"unusable: {one.unusable}" for one in devices if one.unusable}
        workloads.append(Workload(name=name, memory_bytes=int(gib * GIB), seconds=seconds, forbidden=forbidden))
    return place(workloads, devices)


def told(name: str, adapter: HardwareAdapter) -> dict[str, Any]:
    """Print what there is to say of one machine, and return it as plain values."""
    devices = adapter.discover_devices()
    print(f"== {name}\n\n{capabilities_text(devices)}")
    capabilities = adapter.get_cross_vendor_capabilities()
    memory = capabilities["available_memory_gb"]
    print(f"{capabilities['cross_vendor_devices']} device(s): {capabilities['vendor_distribution']}")
    print(f"memory on those that may be used: {'unknown' if memory is None else f'{memory} GiB'}\n")
    answers = []
    for gib, tflops, vendors in NEEDS:
        found = adapter.get_optimal_device_hal(gib, tflops, vendors)
        print(f"{gib:g} GiB and {tflops:g} TFLOPS: {choice_text(found)}")
        answers.append({"memory_gb": gib, "tflops": tflops, **choice_dict(found)})
    return {
        "vendors": capabilities["vendor_distribution"],
        "available_memory_gb": memory,
        "devices": [one.name for one in devices],
        "answers": answers,
    }


def show_placement(found: Placement) -> None:
    """Print where each workload is, or why it is nowhere."""
    for one in found.assignments:
        speed = "unknown speed" if one.seconds.value is None else f"{one.seconds.value:.3g} s"
        print(f"{one.workload} -> {one.device} ({speed}; {one.reason})")
    for misfit in found.misfits:
        print(f"{misfit.workload} has no place:")
        for device, why in misfit.reasons.items():
            print(f"  {device}: {why}")
    print(f"{found.method}; longest {found.makespan_s:.3g} s, no less than {found.bound_s:.3g} s\n")


def parsed(description: str) -> argparse.Namespace:
    """The options that both demos have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--replay", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="Leave out what takes more than seconds.")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    return parser.parse_args()


def gathered(folders: list[Path]) -> dict[str, Any]:
    """Print all, and return it as plain values."""
    adapters = machines(folders)
    found: dict[str, Any] = {"machines": {name: told(name, adapter) for name, adapter in adapters.items()}}
    devices = [
        replace(one, name=f"{name}/{one.name}") if len(adapters) > 1 else one
        for name, adapter in adapters.items()
        for one in adapter.discover_devices()
    ]
    print("== placement\n")
    placement = placed(devices)
    show_placement(placement)
    return found | {"placement": placement.to_dict()}


def main() -> None:
    """Print, and keep."""
    asked = parsed(__doc__ or "")
    found = gathered(asked.replay)
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
