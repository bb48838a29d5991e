"""Device calls of backends whose runtimes are asked: torch and OpenVINO."""

from __future__ import annotations

import pytest
import torch

from hardware.backends.base import Unsupported
from hardware.backends.factory import BackendFactory, built_in_targets, get_backend, get_optimizer
from hardware.errors import BackendUnavailable, UsageError
from hardware.legacy import get_device_info_dict, optimize_legacy
from hardware.optimization import CPUOptimizer
from hardware.target import Target


def test_what_is_here_has_devices_and_what_is_missing_a_reason(monkeypatch):
    monkeypatch.setattr("hardware.backends.factory.known_targets", lambda: ("cpu", "simulated", "cuda"))
    found = BackendFactory.get_all_backend_info()
    (processor,) = found["cpu"]["devices"]
    assert found["cpu"]["available"]
    assert found["simulated"]["available"]
    assert processor["total_memory_bytes"] > 2**30
    assert "isn't there" in get_backend(Target(name="cpu", index=7)).unavailable()
    for name in built_in_targets():  # an unused backend closes, whether its device is here or not
        with get_backend(Target(name=name)) as backend:
            assert name == backend.BACKEND_NAME
    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch is built for a GPU")
    assert found["cuda"] == {"available": False, "reason": "this torch is built without CUDA", "devices": []}
    assert not get_backend(Target(name="rocm")).is_available
    assert not get_backend("cuda:99").is_available
    missing = get_backend("cuda")
    assert missing.device_count == 0
    with pytest.raises(BackendUnavailable, match="cuda:0 isn't there"):
        missing.set_device(0)
    with pytest.raises(BackendUnavailable, match="built without CUDA"):
        missing.prepare_model(torch.nn.Linear(2, 2))


def test_a_runtime_of_graphs_prepares_and_optimizes_no_modules():
    backend = get_backend("openvino")
    with pytest.raises(Unsupported, match="compiles them in load"):
        backend.prepare_model(torch.nn.Linear(2, 2))
    assert backend.device_count == 1
    assert type(get_optimizer("cpu")) is CPUOptimizer
    with pytest.raises(UsageError, match="nothing optimises models for 'openvino'"):
        get_optimizer("openvino")


def test_older_names_work_and_say_what_to_use():
    with pytest.warns(DeprecationWarning, match=r"get_backend\(name\).get_device_info"):
        assert get_device_info_dict("cpu") == get_backend("cpu").get_device_info().to_dict()
    with pytest.warns(DeprecationWarning, match="prepare_model"):
        assert isinstance(optimize_legacy(torch.nn.Linear(2, 2), "none", "cpu"), torch.nn.Linear)
