"""Models in the resource pool: they come to the device that was chosen, their bytes are counted by their storages,
and those that are loaded by name bring nothing from elsewhere."""

from __future__ import annotations

import json
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from pool_watch import SPARE, pool_of
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from hardware.errors import BackendUnavailable, BrokenInput, ModelError, OutOfMemory, UsageError
from hwcompat.plugins.placement.pool import ResourcePool
from hwcompat.plugins.placement.pool.pool_models import names_on
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


def test_a_constructor_is_given_the_device_that_was_chosen():
    given = []

    def build(*, device: str) -> torch.nn.Module:
        given.append(device)
        return linear()

    pool = roomy()
    on_host = pool.get_model("kind", "m", build, device="cpu")
    there = pool.get_model("kind", "m", build, hardware_preferences={"device": "simulated"})
    assert given == ["cpu", "simulated:0"]
    assert (on_host.weight.device.type, there.weight.device.type) == ("cpu", "simulated")
    told = pool.get_stats()["devices"]
    assert (told["cpu"]["held_bytes"], told["simulated"]["held_bytes"]) == (MIB, MIB)


def test_a_module_is_moved_there_where_its_constructor_takes_no_device():
    model = roomy().get_model("kind", "m", linear, device="simulated")
    assert model.weight.device.type == "simulated"


def test_what_is_no_module_is_moved_by_its_own_to_or_refused():
    class Engine:
        def to(self, device: str) -> None:
            self.device = device

    assert roomy().get_model("kind", "m", Engine, device="simulated").device == "simulated:0"
    with pytest.raises(UsageError, match="a dict has no `to`"):
        roomy().get_model("kind", "m", dict, device="simulated")


def test_a_model_that_stays_elsewhere_is_refused():
    class Stubborn:
        def __init__(self) -> None:
            self.weights = torch.zeros(8)

        def to(self, device: str) -> Stubborn:
            return self

    pool = roomy()
    with pytest.raises(BackendUnavailable, match="lies on cpu"):
        pool.get_model("kind", "m", Stubborn, device="simulated")
    assert pool.get_stats()["resources"] == []


def test_a_device_that_is_not_here_is_an_error_and_nothing_is_loaded_elsewhere():
    pool, built = roomy(), []
    with pytest.raises(BackendUnavailable, match="mps can't be used"):
        pool.get_model("kind", "m", lambda: built.append(1), device="mps")
    with pytest.raises(UsageError, match="Did you mean 'cuda'"):
        pool.get_model("kind", "m", lambda: built.append(1), device="cdua")
    assert built == []


def test_of_a_priority_list_the_first_that_is_here_is_taken():
    pool = roomy()
    wishes = {"priority_list": ["mps", "simulated", "cpu"]}
    assert pool.get_model("kind", "m", linear, wishes).weight.device.type == "simulated"
    with pytest.raises(BackendUnavailable, match="mps can't be used"):
        pool.get_model("kind", "m", linear, {"priority_list": ["mps"]})


def test_preferences_that_are_not_known_are_refused():
    with pytest.raises(UsageError, match="Did you mean 'device'"):
        roomy().get_model("kind", "m", linear, hardware_preferences={"devise": "cpu"})


def test_a_precision_is_another_model():
    pool = roomy()
    full = pool.get_model("kind", "m", linear, device="cpu")
    half = pool.get_model("kind", "m", linear, hardware_preferences={"device": "cpu", "precision": "fp16"})
    assert (full.weight.dtype, half.weight.dtype) == (torch.float32, torch.float16)
    with pytest.raises(UsageError, match="int4"):
        pool.get_model("kind", "m", linear, hardware_preferences={"device": "cpu", "precision": "int4"})


def test_calls_of_the_earlier_system_work_by_their_words():
    pool = roomy()
    model = pool.get_model(
        model_type="embedding", model_name="m", constructor=linear, hardware_preferences={"device": "cpu"}
    )
    again = pool.get_model(
        model_type="embedding", model_name="m", constructor=linear, hardware_preferences={"device": "cpu"}
    )
    assert again is model
    assert pool.get_tokenizer(model_type="embedding", model_name="m", constructor=dict) == {}
    assert pool.get_resource(resource_type="library", resource_id=None, constructor=lambda: json) is json
    assert pool.cleanup_unused_resources(max_age_minutes=30) == 0
    pool.clear()
    assert pool.get_stats()["resources"] == []


# Bytes


def test_storages_are_counted_once_however_many_tensors_share_them():
    tied = torch.nn.Module()
    tied.first, tied.second = linear(), linear()
    tied.second.weight = tied.first.weight
    tied.register_buffer("kept", torch.zeros(256), persistent=False)
    assert bytes_of(tied) == {"cpu": MIB + 1024}
    whole = torch.zeros(1000)
    assert bytes_of([whole[:10], whole[500:], {"again": whole.view(10, 100)}]) == {"cpu": 4000}


def test_what_wraps_other_tensors_counts_by_those():
    from torch.testing._internal.two_tensor import TwoTensor

    assert bytes_of(TwoTensor(torch.zeros(100), torch.zeros(100))) == {"cpu": 800}
    assert bytes_of(torch.eye(10).to_sparse()) == {"cpu": 10 * 4 + 2 * 10 * 8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "beta state"
        columns = torch.eye(10).to_sparse_csc()
    assert bytes_of(columns)["cpu"] >= 10 * 4 + 10 * 8 + 11 * 8


def test_models_inside_of_other_objects_and_arrays_are_found():
    import numpy

    class Pipeline:
        def __init__(self) -> None:
            self.model = linear()
            self.tables = {"a": numpy.zeros(1000, dtype=numpy.uint8)[10:]}

    assert bytes_of(Pipeline()) == {"cpu": MIB + 1000}
    assert bytes_of(torch.zeros(10, device="meta")) == {"cpu": 0}


def test_a_budget_is_kept_by_measured_bytes_and_memory_goes_back():
    pool = pool_of(3 * MIB)
    watched = [weakref.ref(pool.get_model("kind", str(n), linear, device="cpu")) for n in range(6)]
    told = pool.get_stats()
    assert [one() is None for one in watched] == [True] * 4 + [False] * 2
    assert (told["evictions"], told["devices"]["cpu"]["held_bytes"]) == (4, 2 * MIB)
    assert {one["measured_by"] for one in told["resources"]} == {"tensors"}


def test_what_somebody_keeps_of_a_released_model_counts_until_it_is_gone():
    pool = pool_of(3 * MIB)
    weights = pool.get_model("kind", "first", linear, device="cpu").state_dict()
    pool.clear()
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == MIB
    del weights
    assert pool.get_stats()["devices"]["cpu"]["lingering_bytes"] == 0


def test_each_device_has_a_budget_of_its_own():
    pool = ResourcePool(budgets={"cpu": 3 * MIB, "simulated": MIB}, memory=lambda device: SPARE)
    for name in "abc":
        pool.get_model("kind", name, linear, device="simulated")
    pool.get_model("kind", "a", linear, device="cpu")
    there = [(one["id"], one["device"]) for one in pool.get_stats()["resources"]]
    assert there == [("c", "simulated"), ("a", "cpu")]


def test_memory_that_runs_out_on_a_device_is_told_with_its_reason(monkeypatch):
    def build() -> torch.nn.Module:
        raise torch.OutOfMemoryError("simulated: out of device memory")

    with pytest.raises(OutOfMemory, match="simulated: out of device memory"):
        roomy().get_model("kind", "large", build, device="simulated")


def test_what_torchs_allocator_says_counts_where_it_is_more(monkeypatch):
    allocated = iter([1000, 1000 + 3 * MIB])
    monkeypatch.setattr(
        "hwcompat.plugins.placement.pool.load_resource.allocated_bytes", lambda device: next(allocated)
    )
    pool = roomy()
    pool.get_model("kind", "m", linear, device="cpu")
    (one,) = pool.get_stats()["resources"]
    assert (one["bytes_by_device"], one["allocator_change_bytes"]) == ({"cpu": 3 * MIB}, 3 * MIB)


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


def test_a_folder_of_another_type_is_told(checkpoint):
    with pytest.raises(ModelError, match="is a 'bert', not a 'gpt2'"):
        roomy().get_model("gpt2", str(checkpoint), device="cpu")


def test_a_name_that_is_not_cached_is_told_and_nothing_is_fetched():
    with pytest.raises(ModelError, match="hf download nobody/nothing"):
        roomy().get_model("bert", "nobody/nothing", device="cpu")
    with pytest.raises(ModelError, match="the tokenizer 'nobody/nothing'"):
        roomy().get_tokenizer("bert", "nobody/nothing")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "it is an adapter"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: with_setting(folder, "attn_implementation", "somebody/kernels"), "somebody/kernels"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no weights"), "can't be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "can't be loaded"),
        (lambda folder: with_setting(folder, "num_hidden_layers", 2), "weights of BertForMaskedLM are missing"),
    ],
)
def test_what_would_come_from_elsewhere_or_is_broken_is_refused(checkpoint, tmp_path, change, said):
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    change(folder)
    pool = roomy()
    with pytest.raises((BrokenInput, ModelError), match=said):
        pool.get_model("bert", str(folder), device="cpu")
    assert pool.get_stats()["failures"] <= 1
    assert pool.get_stats()["resources"] == []


def with_setting(folder: Path, name: str, value: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))


def test_what_runs_no_modules_needs_a_constructor():
    with pytest.raises(UsageError, match="Give a constructor"):
        roomy().get_model("bert", "x", device="openvino")
    made = roomy().get_model("bert", "x", lambda device: {"on": device}, device="openvino")
    assert made == {"on": "openvino"}
