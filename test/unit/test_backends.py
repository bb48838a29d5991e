"""Backends are found by their file's name, chosen by what a user writes, and never guessed."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from hardware import registry
from hardware.backends import factory
from hardware.backends.base import BaseBackend, Execution, Runnable
from hardware.backends.factory import (
    aliases,
    backend_class,
    built_in_targets,
    get_backend,
    known_targets,
    resolve_target,
)
from hardware.errors import BrokenPlugin, UsageError
from hardware.target import Target


class NoRunnable(Runnable):
    """The least that satisfies the type."""

    def __call__(self, **inputs):
        return {}

    def execution(self):
        return Execution(native={}, offloaded={}, dtype="float32", device="x", unseen="")

    def watched(self, inputs):
        return {}, {}


class PluggedBackend(BaseBackend):
    """What a plug-in would bring."""

    BACKEND_NAME = "plugged"

    def _check_availability(self):
        return "no such device"

    @property
    def device(self):
        return "plugged:0"

    @property
    def device_count(self):
        return 0

    def _get_device_info(self, device_id):
        raise NotImplementedError

    def known_answer(self):
        return (0.0, 0.0, 0.0)

    def load(self, subject, example_inputs, precision):
        return NoRunnable()


@pytest.fixture
def plugged(monkeypatch):
    """A plug-in `plugged`, as its package's entry point would declare it."""
    point = importlib.metadata.EntryPoint("plugged", f"{__name__}:PluggedBackend", factory.TARGETS.group)
    monkeypatch.setattr(factory.TARGETS, "added", lambda: {"plugged": point})
    return point


def test_the_targets_that_ship_are_there():
    assert {"cpu", "cuda", "rocm", "mps", "xpu", "openvino", "simulated"} <= set(built_in_targets())
    assert not {"base", "factory", "_torch", "__init__"} & set(built_in_targets())


@pytest.mark.parametrize("name", built_in_targets())
def test_a_target_leads_to_the_one_class_of_its_name(name):
    assert name == backend_class(name).BACKEND_NAME
    assert str(get_backend(name).target) == name


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("cpu", "cpu"),
        (" CPU ", "cpu"),
        ("cuda:1", "cuda:1"),
        ("nvidia", "cuda"),
        ("GPU", "cuda"),
        ("nvidia:1", "cuda:1"),
        ("amd", "rocm"),
        ("intel", "xpu"),
        ("apple", "mps"),
        ("OpenVINO:NPU", "openvino:NPU"),
        ("openvino:gpu.1", "openvino:GPU.1"),
        ("openvino:auto", "openvino:AUTO"),
        ("Chrome", "webgpu"),
        ("browser:native", "webgpu:native"),
    ],
)
def test_what_a_user_writes_is_resolved(text, target):
    assert str(resolve_target(text)) == target


def test_aliases_name_targets():
    assert set(aliases().values()) <= set(built_in_targets())


@pytest.mark.parametrize(
    ("text", "hint"),
    [("cdua", "Did you mean 'cuda'?"), ("opnvino", "'openvino'"), ("nvdia", "'nvidia'"), ("autoo", "'auto'")],
)
def test_a_misspelt_device_is_an_error_that_offers_the_right_one(text, hint):
    with pytest.raises(UsageError, match="unknown device") as caught:
        resolve_target(text)
    assert hint in str(caught.value)
    assert "Known: cpu" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", ":", "base", "factory", "_torch", "../cpu", "cpu/../cuda", "hardware", "cuda\0"]
)
def test_nothing_but_a_target_is_imported(text):
    with pytest.raises(UsageError):
        resolve_target(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu:3", "cpu takes no index"),
        ("simulated:0", "simulated takes no index"),
        ("cuda:x", "cuda has no variant 'x'. Known: cuda, and with an index: cuda:0."),
        ("cpu:x", "Known: cpu."),
        ("openvino:XYZ", "Known: openvino, openvino:CPU, openvino:GPU, openvino:NPU, openvino:AUTO"),
        ("openvino:NPUU", "Did you mean 'npu'?"),
    ],
)
def test_a_target_that_cannot_be_is_an_error_that_names_those_that_can(text, says):
    with pytest.raises(UsageError, match="unknown device") as caught:
        resolve_target(text)
    assert says in str(caught.value)
    assert caught.value.exit_code == 4


def test_an_index_beyond_what_is_there_is_a_missing_device():
    assert not get_backend("cuda:99").is_available


@pytest.mark.parametrize("text", ["cuda:", "cuda:-1", "cuda:1:2", "openvino: NPU"])
def test_a_known_name_with_a_broken_rest_is_refused(text):
    with pytest.raises(UsageError):
        resolve_target(text)


def test_a_plug_in_is_a_target_like_the_others(plugged):
    assert "plugged" in known_targets()
    backend = get_backend("plugged:2")
    assert isinstance(backend, PluggedBackend)
    assert backend.target.index == 2
    assert not backend.is_available
    assert backend.unavailable() == "no such device"


def test_a_plug_in_that_is_no_backend_is_named(monkeypatch):
    point = importlib.metadata.EntryPoint("odd", "pathlib:Path", factory.TARGETS.group)
    monkeypatch.setattr(factory.TARGETS, "added", lambda: {"odd": point})
    with pytest.raises(BrokenPlugin, match=r"plugin 'odd' \(pathlib:Path\) is no backend"):
        backend_class("odd")


def test_a_plug_in_that_cannot_be_imported_is_a_broken_plug_in(monkeypatch):
    point = importlib.metadata.EntryPoint("acme", "nothing_there.backend:Acme", factory.TARGETS.group)
    monkeypatch.setattr(factory.TARGETS, "added", lambda: {"acme": point})
    with pytest.raises(BrokenPlugin, match="No module named 'nothing_there'"):
        backend_class("acme")


def test_a_plug_in_cannot_take_the_place_of_a_target_that_ships(monkeypatch):
    point = importlib.metadata.EntryPoint("cpu", f"{__name__}:PluggedBackend", factory.TARGETS.group)
    monkeypatch.setattr(registry, "entry_points", lambda group: {"cpu": point})
    assert backend_class("cpu").__module__ == "hardware.backends.cpu"


def test_a_backend_closes_when_its_block_ends(plugged, monkeypatch):
    closed = []
    monkeypatch.setattr(PluggedBackend, "close", lambda self: closed.append(self))
    with get_backend("plugged") as backend:
        assert closed == []
    assert closed == [backend]


@pytest.mark.parametrize("ability", ["generate", "gradients", "save_and_reload"])
def test_an_ability_that_a_runnable_lacks_is_not_pretended(ability, tmp_path):
    runnable = NoRunnable()
    assert runnable.can == frozenset()
    call = {
        "generate": lambda: runnable.generate({}, steps=1),
        "gradients": lambda: runnable.gradients({}),
        "save_and_reload": lambda: runnable.save_and_reload(tmp_path),
    }
    with pytest.raises(NotImplementedError):
        call[ability]()


def test_only_operators_off_the_allow_list_count_as_beyond_it():
    proof = Execution(
        native={"aten.mm": 2},
        offloaded={"aten.arange": 1, "aten.add": 3},
        dtype="float32",
        device="x",
        unseen="",
        host_allowed=frozenset({"aten.arange"}),
    )
    assert proof.beyond_allowed == {"aten.add": 3}


def test_cpu_and_simulated_are_here_and_an_index_that_is_not_says_so():
    assert get_backend("cpu").is_available
    assert get_backend("simulated").is_available
    assert "isn't there" in get_backend(Target(name="cpu", index=7)).unavailable()


@pytest.mark.parametrize(("name", "package"), [("cpu", "torch"), ("openvino", "openvino")])
def test_a_missing_runtime_says_how_to_install_it(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert get_backend(name).unavailable() == f"{package} isn't installed (pip install -r requirements.txt)"


def test_a_torch_without_a_device_gives_the_reason():
    import torch

    if torch.version.cuda or torch.version.hip:
        pytest.skip("this torch is built for a GPU")
    assert get_backend("cuda").unavailable() == "this torch is built without CUDA"
    assert not get_backend("rocm").is_available
