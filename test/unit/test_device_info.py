"""What a torch device tells of itself, and that its memory is given back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hardware.backends.factory import get_backend
from hardware.inventory.system.main_memory import read_memory


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("cuda", {"compute_capability": "9.0", "bf16": True, "fp8_supported": True, "topology": "reads 0 directly"}),
        ("rocm", {"compute_capability": "gfx942", "bf16": True, "fp8_supported": True}),
        ("xpu", {"driver_version": "1.6", "bf16": True, "topology": "a discrete GPU"}),
    ],
)
def test_device_info_is_what_torch_tells_of_the_device(monkeypatch, name, extra):
    import torch

    backend = get_backend(f"{name}:1")
    monkeypatch.setattr(backend, "_check_availability", lambda: "")
    found = SimpleNamespace(
        name="Device",
        total_memory=2**30,
        **{"major": 9, "minor": 0, "multi_processor_count": 132},
        gcnArchName="gfx942:sramecc+:xnack-",
        **{"driver_version": "1.6", "version": "12.0", "has_bfloat16_conversions": True, "is_integrated_gpu": False},
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda _one, _other: True)
    asked = []
    api = getattr(torch, backend.DEVICE_TYPE)
    monkeypatch.setattr(api, "get_device_properties", lambda device: asked.append(str(device)) or found)
    info = backend.get_device_info()
    assert asked == [f"{backend.DEVICE_TYPE}:1"]
    assert (info.backend, info.device_name, info.device_id, info.total_memory_gb) == (name, "Device", 1, 1.0)
    told = info.to_dict() | dict(info.properties)
    assert {field: told[field] for field in extra} == extra


def test_small_precisions_are_those_of_the_architecture(monkeypatch):
    import torch

    for name, facts, bf16, fp8 in (
        ("cuda", {"major": 7, "minor": 5}, False, False),
        ("cuda", {"major": 8, "minor": 0}, True, False),
        ("cuda", {"major": 8, "minor": 9}, True, True),
        ("rocm", {"gcnArchName": "gfx906"}, False, False),
        ("rocm", {"gcnArchName": "gfx90a"}, True, False),
        ("rocm", {"gcnArchName": "gfx1201"}, True, True),
    ):
        found = SimpleNamespace(name="Device", total_memory=1, multi_processor_count=1, **facts)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device, found=found: found)
        backend = get_backend(name)
        monkeypatch.setattr(backend, "_check_availability", lambda: "")
        properties = backend.get_device_info().properties
        assert (properties["bf16"], properties["fp8_supported"]) == (bf16, fp8), facts


def test_a_closed_model_frees_the_cached_memory_of_a_device_that_was_used(monkeypatch):
    import torch

    for name in ("cuda", "rocm", "xpu", "mps"):
        backend, emptied = get_backend(name), []
        monkeypatch.setattr(getattr(torch, backend.DEVICE_TYPE), "empty_cache", lambda to=emptied: to.append(1))
        backend.empty_cache()
        assert emptied == [], "the device wasn't used yet"
        backend.torch_device()
        backend.empty_cache()
        assert emptied == [1]


@pytest.mark.parametrize("name", ["cpu", "openvino"])
def test_a_device_that_is_the_processor_has_main_memory(name):
    assert get_backend(name).get_device_info().total_memory_bytes == read_memory().total_bytes
