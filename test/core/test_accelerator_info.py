"""What one accelerator tells about itself, whichever vendor it is of."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from recorded_machines import FIXTURES, changed, machine

from hardware.errors import UsageError
from hardware.inventory.vendors import registered_vendors
from hardware.inventory.vendors._lazy_library import LazyLibrary
from hardware.inventory.vendors._tool_values import link_gbps
from hardware.inventory.vendors.nvidia import NvidiaAccelerators, Nvml
from hardware.inventory.vendors.vendor import AcceleratorInfo, LibraryState, NoSuchIndex


def test_memory_is_given_in_bytes_or_in_gigabytes() -> None:
    card: dict[str, Any] = {"vendor": "X", "device_type": "gpu", "model": "Card"}
    assert AcceleratorInfo(**card, memory_gb=1.5).memory_bytes == 1.5 * 2**30
    whole = AcceleratorInfo(**card, memory_bytes=2**30, memory_gb=7.0)
    assert (whole.memory_gb, replace(whole, memory_bytes=2**31).memory_gb) == (1.0, 2.0)
    assert replace(whole, memory_bytes=None).memory_gb is None
    assert AcceleratorInfo(**asdict(whole)) == whole
    assert AcceleratorInfo(**card).memory_gb is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"vendor": 1}, "vendor must be str, not 1"),
        ({"model": None}, "model must be str, not None"),
        ({"index": "x"}, "index must be int or None, not 'x'"),
        ({"index": True}, "index must be int or None, not True"),
        ({"memory_gb": "80"}, "memory_gb must be float or None"),
        ({"device_type": "nonsense"}, "device_type must be one of gpu, npu, tpu, lpu, wse, not 'nonsense'"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_its_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AcceleratorInfo(**{"vendor": "X", "device_type": "gpu", "model": "Card", **wrong})


def test_an_absent_index_is_the_same_error_for_every_vendor() -> None:
    asked = 0
    for name, kind in registered_vendors().found.items():
        for place in [None, *sorted(FIXTURES.glob(f"{name}/*/machine.json"))]:
            told = machine("machines/vm-virtio" if place is None else str(place.parent.relative_to(FIXTURES)))
            backend = kind(told)
            for what in ("temperature", "memory", "utilization", "power", "throttle"):
                with pytest.raises(NoSuchIndex, match=f"{backend.VENDOR_NAME} device 99 not found"):
                    backend.reading(99, what)
            for index in range(backend.get_device_count()):
                rates = backend.get_utilization(index)
                assert rates is None or set(rates) == {"compute", "memory"}
                asked += 1
    assert asked > 30


def test_cores_of_a_gpu_follow_from_its_capability(tmp_path: Path) -> None:
    answers = json.loads((FIXTURES / "nvidia/h100-x8/libraries/nvml.json").read_text())
    told = changed(
        "nvidia/h100-x8", tmp_path, libraries={"nvml": answers | {"nvmlDeviceGetNumGpuCores 0": {"value": 16896}}}
    )
    first, second = NvidiaAccelerators(told).list_devices()[:2]
    assert [first.extra_info[name] for name in ("cuda_cores", "sm_count", "tensor_cores")] == [16896, 132, 528]
    assert "sm_count" not in second.extra_info
    assert first.interconnect_gbps == 63.02, "PCIe 5.0 x16"
    assert first.extra_info["nvlink_gbps"] == 900
    others = NvidiaAccelerators(machine("nvidia/workstation")).list_devices()
    assert not [one.model for one in others if "nvlink_gbps" in one.extra_info]
    assert (link_gbps(3, 16), link_gbps(1, 1), link_gbps(None, 16), link_gbps(4, "x")) == (15.75, 0.25, None, None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
            "comes with the NVIDIA driver",
        ),
        (
            "/lib/libnvidia-ml.so.1: undefined symbol: gnu_get",
            "installed, but can't be loaded: /lib/.*undefined symbol",
        ),
        (
            "libcuda.so.1: cannot open shared object file: No such file or directory",
            "installed, .*libcuda.so.1: cannot",
        ),
    ],
)
def test_a_library_that_is_there_is_reported_with_the_loaders_words(
    words: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise OSError(words)

    monkeypatch.setattr("hardware.inventory.vendors.nvidia.ctypes.CDLL", refuse)
    library: LazyLibrary = Nvml()
    status = library.ask("opening").value
    assert status[0] == LibraryState.MISSING
    assert re.search(reason, status[2]), status[2]
