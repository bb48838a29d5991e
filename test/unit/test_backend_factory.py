"""The factory, the settings and the device calls that every backend has."""

from __future__ import annotations

import pytest
import torch

from hardware.backends._device_info import OWN, settings_for
from hardware.backends.base import Unsupported
from hardware.backends.factory import (
    BackendFactory,
    BackendType,
    built_in_targets,
    detect_best_backend,
    get_backend,
    get_optimizer,
    list_available_backends,
)
from hardware.errors import BackendUnavailable, UsageError
from hardware.legacy import get_device_info_dict, optimize_legacy
from hardware.optimization import CPUOptimizer
from hardware.target import Target


def test_every_target_with_a_file_is_a_type_and_no_other():
    assert {one.value for one in BackendType} == {*built_in_targets(), "auto"}


@pytest.mark.parametrize(("name", "target"), [("NVIDIA", "cuda"), ("amd", "rocm"), ("cpu", "cpu"), ("gpu", "cuda")])
def test_vendors_are_names_too(name, target):
    assert target == BackendFactory.create(name).BACKEND_NAME


def test_a_type_is_taken_as_its_target():
    assert BackendFactory.create(BackendType.INTEL).BACKEND_NAME == "xpu"


@pytest.mark.parametrize("call", [BackendFactory.create, BackendFactory.is_available, get_backend, get_optimizer])
def test_an_unknown_name_is_an_error_and_never_the_cpu(call):
    with pytest.raises(UsageError, match="Did you mean 'cuda'"):
        call("cudaa")


def test_auto_is_the_first_that_can_be_used(monkeypatch):
    assert detect_best_backend() == "cpu"  # no accelerator is needed for these tests
    assert get_backend().BACKEND_NAME == get_backend("AUTO").BACKEND_NAME == "cpu"
    from hardware.backends.xpu import IntelBackend

    monkeypatch.setattr(IntelBackend, "_check_availability", lambda self: "")
    assert detect_best_backend() == "xpu"


def test_everything_known_is_told_with_its_reason():
    told = BackendFactory.get_all_backend_info()
    assert set(told) >= set(built_in_targets())
    assert told["cuda"] == {"available": False, "reason": "this torch is built without CUDA", "devices": []}
    assert told["cpu"]["available"]
    assert told["cpu"]["devices"][0]["total_memory_bytes"] > 2**30
    assert told["cpu"]["devices"][0]["total_memory_gb"] == told["cpu"]["devices"][0]["total_memory_bytes"] / 2**30
    assert {name for name, one in told.items() if one["available"]} == set(list_available_backends())


def test_what_is_not_here_has_no_devices_and_takes_none():
    backend = get_backend("cuda")
    assert backend.device_count == 0
    with pytest.raises(BackendUnavailable, match="cuda:0 isn't there"):
        backend.set_device(0)
    with pytest.raises(BackendUnavailable, match="built without CUDA"):
        backend.prepare_model(torch.nn.Linear(2, 2))


def test_tensors_and_what_holds_them_go_to_the_device():
    backend = get_backend("simulated")
    moved = backend.to_device({"a": torch.ones(2), "b": [torch.zeros(1), "text"], "c": 3})
    assert [moved["a"].device.type, moved["b"][0].device.type] == ["simulated"] * 2
    assert moved["b"][1:] == ["text"]
    assert moved["c"] == 3
    assert next(backend.to_device(torch.nn.Linear(2, 2)).parameters()).device.type == "simulated"
    backend.synchronize()
    assert backend.device_count == 1
    backend.set_device(0)
    with pytest.raises(BackendUnavailable, match="there are 1 devices"):
        backend.set_device(1)


def test_a_runtime_of_graphs_prepares_no_modules():
    with pytest.raises(Unsupported, match="compiles them in load"):
        get_backend("openvino").prepare_model(torch.nn.Linear(2, 2))
    assert get_backend("openvino").device_count == 1


def test_settings_have_reasons_and_the_callers_own_go_before():
    for name in built_in_targets():
        for value in settings_for(Target.parse(name)).to_dict().values():
            assert value["reason"]
    assert settings_for(Target.parse("cuda")).precision.value == "bfloat16"
    assert settings_for(Target.parse("openvino:NPU")).precision.value == "float16"
    assert settings_for(Target.parse("openvino")).precision.value == "float32"
    own = get_backend("cpu", config={"threads": 2}).settings
    assert (own.threads.value, own.threads.reason) == (2, OWN)
    assert own.batch_size == settings_for(Target.parse("cpu")).batch_size


@pytest.mark.parametrize(
    ("config", "words"),
    [({"thread": 2}, "Did you mean 'threads'"), ({"threads": -1}, "can't be"), ({"precision": 3}, "can't be")],
)
def test_an_unknown_setting_is_an_error(config, words):
    with pytest.raises(UsageError, match=words):
        get_backend("cpu", config=config)


def test_an_optimiser_is_found_by_target():
    assert type(get_optimizer("cpu")) is CPUOptimizer
    with pytest.raises(UsageError, match="nothing optimises models for 'openvino'"):
        get_optimizer("openvino")


def test_older_names_work_and_say_what_to_use():
    with pytest.warns(DeprecationWarning, match=r"get_backend\(name\).get_device_info"):
        assert get_device_info_dict("cpu") == get_backend("cpu").get_device_info().to_dict()
    with pytest.warns(DeprecationWarning, match="prepare_model"):
        assert isinstance(optimize_legacy(torch.nn.Linear(2, 2), "none", "cpu"), torch.nn.Linear)


def test_a_backend_gives_back_what_it_took(monkeypatch):
    backend = get_backend("simulated")
    emptied = []
    monkeypatch.setattr(type(backend), "empty_cache", lambda self: emptied.append(self))
    with backend as entered:
        assert entered is backend
    assert emptied == [backend]


@pytest.mark.parametrize("name", built_in_targets())
def test_what_was_never_used_closes_whether_it_is_here_or_not(name):
    with get_backend(name) as backend:
        assert name == backend.BACKEND_NAME
