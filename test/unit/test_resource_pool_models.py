"""Models in the resource pool: their device, their bytes by storage, memory of devices, and loading by name."""

from __future__ import annotations

import json
import shutil
import warnings
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pool_watch import SPARE, pool_of
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from hardware.backends.factory import backend_class
from hardware.errors import BackendUnavailable, BrokenInput, ModelError, OutOfMemory, UsageError
from hardware.inventory.system.main_memory import MemoryInfo, cgroup_files_bytes, cgroup_memory
from hwcompat.plugins.placement.pool import ResourcePool, device_memory, pool_models
from hwcompat.plugins.placement.pool.device_memory import (
    MemoryReading,
    allocated_bytes,
    give_back,
    read_device,
    resident_bytes,
)
from hwcompat.plugins.placement.pool.pool_models import names_on, place_for
from hwcompat.plugins.placement.pool.resource_sizes import size_of

MIB = 2**20


def linear(inputs: int = 256, outputs: int = 1024) -> torch.nn.Linear:
    return torch.nn.Linear(inputs, outputs, bias=False)


def bytes_of(resource: object) -> dict[str, int]:
    return dict(size_of(resource, "cpu", names_on("cpu").name_of).bytes_by_device)


def roomy() -> ResourcePool:
    return pool_of(100 * MIB)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with its tokenizer, in half precision."""
    folder = tmp_path_factory.mktemp("bert")
    config = BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertForMaskedLM(config).to(torch.bfloat16).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    BertTokenizer(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    return folder


# The device


def test_a_model_is_built_on_or_moved_to_the_chosen_device():
    given, pool = [], roomy()

    def build(*, device: str) -> torch.nn.Module:
        given.append(device)
        return linear()

    class Engine:
        def to(self, device: str) -> None:
            self.device = device

    on_host = pool.get_model("kind", "m", build, device="cpu")
    there = pool.get_model("kind", "m", build, hardware_preferences={"device": "simulated"})
    assert given == ["cpu", "simulated:0"]
    assert (on_host.weight.device.type, there.weight.device.type) == ("cpu", "simulated")
    devices = pool.get_stats()["devices"]
    assert (devices["cpu"]["held_bytes"], devices["simulated"]["held_bytes"]) == (MIB, MIB)
    assert roomy().get_model("kind", "m", linear, device="simulated").weight.device.type == "simulated"
    assert roomy().get_model("kind", "m", Engine, device="simulated").device == "simulated:0"
    with pytest.raises(UsageError, match="a dict has no `to`"):
        roomy().get_model("kind", "m", dict, device="simulated")
    with pytest.raises(UsageError, match="expected_bytes is -1"):
        roomy().get_model("kind", "m", linear, device="cpu", expected_bytes=-1)
    with pytest.raises(UsageError, match="Give a constructor"):
        roomy().get_model("bert", "x", device="openvino")
    made = roomy().get_model("bert", "x", lambda device: {"on": device}, device="openvino")
    assert made == {"on": "openvino"}


def test_without_a_wish_the_order_of_the_family_decides(monkeypatch):
    here = {"mps", "tpu", "cpu", "openvino"}
    for name in ("cuda", "rocm", "tpu", "xpu", "mps", "cpu"):
        monkeypatch.setattr(backend_class(name), "unavailable", lambda self, n=name: "" if n in here else "missing")
    monkeypatch.setattr(pool_models, "_usable", pool_models._usable.__wrapped__)
    chosen = {
        kind: place_for(None, kinds=(kind, "x")).device for kind in ("speech", "multimodal", "whisper", "other")
    }
    assert chosen == {"speech": "mps:0", "multimodal": "cpu", "whisper": "mps:0", "other": "tpu"}
    assert place_for(None, {"priority_list": ["cpu"]}, kinds=("speech",)).device == "cpu"
    assert place_for("cpu", kinds=("speech",)).device == "cpu"


def test_a_model_that_stays_elsewhere_is_refused():
    class Stubborn:
        def __init__(self) -> None:
            self.weights = torch.zeros(8)

        def to(self, device: str) -> Stubborn:
            return self

    pool = roomy()
    with pytest.raises(BackendUnavailable, match="created it on cpu"):
        pool.get_model("kind", "m", Stubborn, device="simulated")
    assert pool.get_stats()["resources"] == []


def test_an_absent_device_or_an_unknown_wish_is_an_error_and_nothing_is_loaded():
    pool, built = roomy(), []
    for error, words, options in (
        (BackendUnavailable, "mps can't be used", {"device": "mps"}),
        (BackendUnavailable, "mps can't be used", {"hardware_preferences": {"priority_list": ["mps"]}}),
        (UsageError, "Did you mean 'cuda'", {"device": "cdua"}),
        (UsageError, "Did you mean 'device'", {"hardware_preferences": {"devise": "cpu"}}),
        (UsageError, "int4", {"hardware_preferences": {"device": "cpu", "precision": "int4"}}),
    ):
        with pytest.raises(error, match=words):
            pool.get_model("kind", "m", lambda: built.append(1), **options)
    assert built == []
    wishes = {"priority_list": ["mps", "simulated", "cpu"]}
    assert pool.get_model("kind", "m", linear, wishes).weight.device.type == "simulated"


def test_a_precision_is_another_model():
    pool = roomy()
    full = pool.get_model("kind", "m", linear, device="cpu")
    half = pool.get_model("kind", "m", linear, hardware_preferences={"device": "cpu", "precision": "fp16"})
    assert (full.weight.dtype, half.weight.dtype) == (torch.float32, torch.float16)


def test_calls_of_the_earlier_system_work_by_their_words():
    pool = roomy()
    words = {"model_type": "embedding", "model_name": "m"}
    model, again = (
        pool.get_model(**words, constructor=linear, hardware_preferences={"device": "cpu"}) for _ in range(2)
    )
    assert again is model
    assert pool.get_tokenizer(**words, constructor=dict) == {}
    assert pool.get_resource(resource_type="library", resource_id=None, constructor=lambda: json) is json
    assert pool.cleanup_unused_resources(max_age_minutes=30) == 0
    pool.clear()
    assert pool.get_stats()["resources"] == []


# Bytes


def test_storages_are_counted_once_in_whatever_holds_them():
    import numpy
    from torch.testing._internal.two_tensor import TwoTensor

    tied = torch.nn.Module()
    tied.first, tied.second = linear(), linear()
    tied.second.weight = tied.first.weight
    tied.register_buffer("kept", torch.zeros(256), persistent=False)
    assert bytes_of(tied) == {"cpu": MIB + 1024}
    whole = torch.zeros(1000)
    assert bytes_of([whole[:10], whole[500:], {"again": whole.view(10, 100)}]) == {"cpu": 4000}

    class Pipeline:
        def __init__(self) -> None:
            self.model = linear()
            self.tables = {"a": numpy.zeros(1000, dtype=numpy.uint8)[10:]}

    assert bytes_of(Pipeline()) == {"cpu": MIB + 1000}
    assert bytes_of(torch.zeros(10, device="meta")) == {"cpu": 0}
    assert bytes_of(TwoTensor(torch.zeros(100), torch.zeros(100))) == {"cpu": 800}
    assert bytes_of(torch.eye(10).to_sparse()) == {"cpu": 10 * 4 + 2 * 10 * 8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "beta state"
        columns = torch.eye(10).to_sparse_csc()
    assert bytes_of(columns)["cpu"] >= 10 * 4 + 10 * 8 + 11 * 8


def test_each_device_keeps_a_budget_of_measured_bytes():
    pool = ResourcePool(budgets={"cpu": 3 * MIB, "simulated": MIB}, memory=lambda device: SPARE)
    for name in "abc":
        pool.get_model("kind", name, linear, device="simulated")
    watched = [weakref.ref(pool.get_model("kind", str(n), linear, device="cpu")) for n in range(6)]
    stats = pool.get_stats()
    assert [one() is None for one in watched] == [True] * 4 + [False] * 2
    assert (stats["evictions"], stats["devices"]["cpu"]["held_bytes"]) == (6, 2 * MIB)
    assert {one["measured_by"] for one in stats["resources"]} == {"tensors"}
    assert [one["id"] for one in stats["resources"] if one["device"] == "simulated"] == ["c"]
    weights = pool.get_model("kind", "5", linear, device="cpu").state_dict()
    pool.clear()
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == MIB, "its weights are in use"
    del weights
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == 0


def test_the_error_and_the_count_of_torchs_allocator_are_used(monkeypatch):
    def build() -> torch.nn.Module:
        raise torch.OutOfMemoryError("simulated: out of device memory")

    with pytest.raises(OutOfMemory, match="simulated: out of device memory"):
        roomy().get_model("kind", "large", build, device="simulated")
    allocated = iter([1000, 1000 + 3 * MIB])
    monkeypatch.setattr(
        "hwcompat.plugins.placement.pool.load_resource.allocated_bytes", lambda device: next(allocated)
    )
    pool = roomy()
    pool.get_model("kind", "m", linear, device="cpu")
    (one,) = pool.get_stats()["resources"]
    assert (one["bytes_by_device"], one["allocator_change_bytes"]) == ({"cpu": 3 * MIB}, 3 * MIB)


# Memory of devices


def test_the_hosts_memory_is_that_of_its_control_group(monkeypatch):
    for files, values, expected in (
        (0, {}, (1000, 600, 0.4)),
        (150, {"cgroup_limit_bytes": 400, "cgroup_used_bytes": 350}, (400, 200, 0.5)),
        (0, {"total_bytes": None, "available_bytes": None}, (None, None, None)),
    ):
        base = {"total_bytes": 1000, "available_bytes": 600, "swap_total_bytes": 0, "swap_free_bytes": 0}
        monkeypatch.setattr(device_memory, "read_memory", lambda known=base | values: MemoryInfo(**known))
        monkeypatch.setattr(device_memory, "cgroup_files_bytes", lambda files=files: files)
        reading = read_device("cpu")
        assert (reading.total_bytes, reading.free_bytes, reading.used_share) == expected
        assert bool(reading.reason) is (expected[0] is None)

    v2 = ("0::/box", "/sys/fs/cgroup/box", ("memory.max", "memory.current"), "inactive_file")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    v1 = ("4:memory:/box", "/sys/fs/cgroup/memory/box", names, "total_inactive_file")
    for own, folder, (limit, used), word in (v1, v2):
        files = {"/proc/self/cgroup": own, f"{folder}/{limit}": "4000", f"{folder}/{used}": "3500"}
        machine = SimpleNamespace(text=files.get)
        assert cgroup_files_bytes(machine) == 0
        files[f"{folder}/memory.stat"] = f"anon 10\n{word} 1500\nactive_file 3\n"
        assert cgroup_memory(machine) == (4000, 3500)
        assert cgroup_files_bytes(machine) == 1500
    assert cgroup_files_bytes(SimpleNamespace(text={}.get)) == 0
    assert resident_bytes() > 10**6


def test_a_devices_memory_is_read_from_torch_by_its_index(monkeypatch):
    freed = []
    cuda = SimpleNamespace(
        mem_get_info=lambda index: (300 + index, 1000),
        memory_allocated=lambda index: 70 + index,
        empty_cache=lambda: freed.append(1),
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    for device in ("cuda:1", "rocm:1"):  # ROCm's devices are torch's `cuda`
        reading = read_device(device)
        assert (reading.total_bytes, reading.free_bytes) == (1000, 301)
        assert allocated_bytes(device) == 71
        give_back(device)
    assert freed == [1, 1]
    mps = SimpleNamespace(
        recommended_max_memory=lambda: 1000, driver_allocated_memory=lambda: 400, current_allocated_memory=lambda: 90
    )
    monkeypatch.setattr(torch, "mps", mps)
    reading = read_device("mps")
    assert (reading.total_bytes, reading.free_bytes, allocated_bytes("mps")) == (1000, 600, 90)

    def lost(index: int) -> tuple[int, int]:
        raise RuntimeError("device lost")

    monkeypatch.setattr(torch, "cuda", SimpleNamespace(mem_get_info=lost, memory_allocated=lost))
    assert read_device("cuda:0") == MemoryReading(reason="RuntimeError: device lost")
    assert allocated_bytes("cuda:0") is None
    assert "doesn't report" in read_device("openvino:NPU").reason
    assert allocated_bytes("cpu") is None
    give_back("cpu")


# By name


def test_a_folder_is_loaded_by_the_class_that_it_names_and_in_its_own_dtype(checkpoint):
    pool = roomy()
    model = pool.get_model("bert", str(checkpoint), device="cpu")
    assert isinstance(model, BertForMaskedLM)
    assert model.dtype is torch.bfloat16
    assert not model.training
    (one,) = pool.get_stats()["resources"]
    wanted = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    buffers = sum(one.untyped_storage().nbytes() for one in model.buffers())
    assert one["bytes_by_device"] == {"cpu": sum(wanted.values()) + buffers}
    assert pool.get_model("bert", str(checkpoint), device="cpu") is model
    assert pool.get_tokenizer("bert", str(checkpoint))("a b")["input_ids"] == [2, 5, 6, 3]


def with_setting(folder: Path, name: str, value: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))


def test_a_name_that_is_not_cached_or_of_another_type_is_refused_and_nothing_is_fetched(checkpoint):
    with pytest.raises(ModelError, match="is a 'bert', not a 'gpt2'"):
        roomy().get_model("gpt2", str(checkpoint), device="cpu")
    with pytest.raises(ModelError, match="hf download nobody/nothing"):
        roomy().get_model("bert", "nobody/nothing", device="cpu")
    with pytest.raises(ModelError, match="the tokenizer 'nobody/nothing'"):
        roomy().get_tokenizer("bert", "nobody/nothing")


def test_a_checkpoint_that_is_broken_or_needs_other_code_is_refused(checkpoint, tmp_path):
    for number, (change, reason) in enumerate(
        (
            (lambda folder: (folder / "adapter_config.json").write_text("{}"), "it is an adapter"),
            (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
            (lambda folder: with_setting(folder, "attn_implementation", "somebody/kernels"), "somebody/kernels"),
            (lambda folder: (folder / "model.safetensors").write_bytes(b"no weights"), "can't be loaded"),
            (lambda folder: (folder / "model.safetensors").unlink(), "can't be loaded"),
            (lambda folder: with_setting(folder, "num_hidden_layers", 2), "weights of BertForMaskedLM are missing"),
        )
    ):
        folder = tmp_path / str(number)
        shutil.copytree(checkpoint, folder)
        change(folder)
        pool = roomy()
        with pytest.raises((BrokenInput, ModelError), match=reason):
            pool.get_model("bert", str(folder), device="cpu")
        assert pool.get_stats()["failures"] <= 1
        assert pool.get_stats()["resources"] == []
