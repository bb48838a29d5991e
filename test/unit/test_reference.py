"""The key of references and exports: it changes with everything that computes."""

from __future__ import annotations

import copy
import functools
import importlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny

from hardware.compare import ReferenceNotFinite
from hardware.evidence.record import Outcome
from hardware.testing import reference

ROOT = Path(__file__).parents[2]


def model(scale: float = 1.0) -> torch.nn.Module:
    made = torch.nn.Linear(2, 2)
    with torch.no_grad():
        made.weight.fill_(scale)
        made.bias.zero_()
    return made


def test_the_same_model_has_the_same_identity():
    assert reference.identity_of(model()) == reference.identity_of(model())


def test_other_weights_are_another_identity():
    assert reference.identity_of(model()) != reference.identity_of(model(1.1))


def test_what_a_state_dictionary_leaves_out_counts_too():
    def with_table(value: float, keep) -> torch.nn.Module:
        made = model()
        keep(made, torch.full((3,), value))
        return made

    def as_buffer(made: torch.nn.Module, table: torch.Tensor) -> None:
        made.register_buffer("table", table, persistent=False)

    def as_attribute(made: torch.nn.Module, table: torch.Tensor) -> None:
        made.table = table

    def in_bfloat16(made: torch.nn.Module, table: torch.Tensor) -> None:
        made.table = table.to(torch.bfloat16)

    for keep in (as_buffer, as_attribute, in_bfloat16):
        known = reference.identity_of(with_table(1.0, keep))
        assert known == reference.identity_of(with_table(1.0, keep))
        assert known != reference.identity_of(with_table(1.5, keep))


class Holds(torch.nn.Module):
    """One layer, and beside it whatever a factory put there."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)
        self._held = held


@dataclass
class Options:
    scale: int


def scaling(by: float) -> Any:
    return lambda x: x * by


def nested(last: Any) -> list[Any]:
    found: list[Any] = [{"deep": (1, {last, "b"})}]
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 2),
        (1, 1.0),
        (True, 1),
        ("a", "b"),
        (None, 0),
        ([1, 2], [2, 1]),
        (nested("a"), nested("c")),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (torch.float32, torch.float16),
        (np.ones(2), np.ones(2, np.float32)),
        ([torch.ones(2)], [torch.zeros(2)]),
        (Options(1), Options(2)),
        (SimpleNamespace(scale=1), SimpleNamespace(scale=2)),
        (Outcome.PASSED, Outcome.FAILED),
        (torch.relu, torch.tanh),
        (lambda x: x + 1, lambda x: x - 1),
        (scaling(1.0), scaling(2.0)),
        (functools.partial(torch.sum, dim=0), functools.partial(torch.sum, dim=1)),
    ],
)
def test_what_a_module_holds_beside_its_tensors_counts_too(one: Any, two: Any):
    assert reference.identity_of(Holds(one)) == reference.identity_of(Holds(copy.deepcopy(one)))
    assert reference.identity_of(Holds(one)) != reference.identity_of(Holds(two))


def test_what_kinds_of_modules_a_model_has_counts_too():
    with_relu, with_gelu = (torch.nn.Sequential(model(), one) for one in (torch.nn.ReLU(), torch.nn.GELU()))
    assert reference.identity_of(with_relu) != reference.identity_of(with_gelu)
    tanh = torch.nn.Sequential(model(), torch.nn.GELU(approximate="tanh"))
    assert reference.identity_of(with_gelu) != reference.identity_of(tanh)


def test_the_order_of_tensors_is_none_of_a_models_identity():
    made = [model(), model()]
    for one, names in zip(made, ("ab", "ba"), strict=True):
        for name in names:
            one.register_buffer(name, torch.ones(ord(name)), persistent=False)
    assert reference.identity_of(made[0]) == reference.identity_of(made[1])


def test_where_a_model_came_from_and_what_has_no_values_are_none_of_its_identity():
    one, two = Holds(threading.Lock()), Holds(threading.Lock())
    one.name_or_path, two.name_or_path = "here", "there"
    assert reference.identity_of(one) == reference.identity_of(two)


NAMES = ("bert", "gpt2", "whisper", "vit", "gemma4_text")
ASK = """
from tiny_models import tiny
from hardware.testing.reference import identity_of
print(*(identity_of(tiny(name)[0]) for name in {names}))
"""


@pytest.mark.parametrize("seed", ["1", "2"])  # of which one gives gemma4_text another order
def test_models_of_a_library_are_the_same_in_every_process(seed: str):
    """Hashes of words differ from process to process, and with them the order of sets."""
    here = [reference.identity_of(tiny(name)[0]) for name in NAMES]
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(names=NAMES)],
        env={
            **os.environ,
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "test/unit"))),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == here
    assert len(set(here)) == len(NAMES)


def test_an_edit_of_another_file_of_a_users_package_is_another_identity(tmp_path, monkeypatch):
    package = tmp_path / "own_package_of_a_user"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import Net\n", encoding="utf-8")
    (package / "scales.py").write_text("SCALE = 1\n", encoding="utf-8")
    (package / "net.py").write_text(
        "import torch\nfrom .scales import SCALE\n\nclass Net(torch.nn.Linear):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net = importlib.import_module(package.name).Net(1, 1)
    before = reference.identity_of(net)
    assert reference.identity_of(net) == before
    (package / "scales.py").write_text("SCALE = 2\n", encoding="utf-8")
    assert reference.identity_of(net) != before


def test_an_edit_of_shared_modelling_code_is_another_identity(tmp_path, monkeypatch):
    shared = tmp_path / "masking_utils.py"
    shared.write_text("right = True\n", encoding="utf-8")
    monkeypatch.setattr(reference, "_SHARED_SOURCES", {"transformers": (str(shared),)})
    before = reference.identity_of(model())
    shared.write_text("right = False\n", encoding="utf-8")
    assert reference.identity_of(model()) != before


def test_an_edit_of_what_makes_a_reference_is_another_identity(tmp_path, monkeypatch):
    root = Path(reference.__file__).parents[1]
    assert all((root / name).is_file() for name in reference._OWN_SOURCES)
    assert {"model/tensors.py", "testing/reference.py"} <= set(reference._OWN_SOURCES)
    own = tmp_path / "_tensors.py"
    own.write_text("right = True\n", encoding="utf-8")
    monkeypatch.setattr(reference, "_OWN_SOURCES", (str(own),))
    before = reference.identity_of(model())
    own.write_text("right = False\n", encoding="utf-8")
    assert reference.identity_of(model()) != before


def test_a_kept_reference_that_was_changed_is_not_used(tmp_path):
    store = reference.ReferenceStore(tmp_path)
    inputs = {"x": torch.ones(2).numpy()}
    store.put("id", inputs, {"y": torch.ones(3).numpy()})
    assert store.get("id", inputs) is not None
    assert store.get("another", inputs) is None
    (file,) = tmp_path.glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert store.get("id", inputs) is None


def test_a_single_number_among_the_outputs_keeps_its_shape(tmp_path):
    store = reference.ReferenceStore(tmp_path)
    inputs = {"x": torch.ones(2).numpy()}
    store.put("id", inputs, {"loss": torch.tensor(3.0).numpy(), "y": torch.ones(2, 3).numpy().T})
    kept = store.get("id", inputs)
    assert kept["loss"].shape == ()
    assert kept["y"].shape == (3, 2)


class Scores(torch.nn.Module):
    """Attention weights as eager modelling code computes them: the softmax asks for float32."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0 / 3.0))

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = torch.where(attention_mask.bool(), 0.0, torch.finfo(x.dtype).min)
        return torch.nn.functional.softmax(x * self.scale + hidden, dim=-1, dtype=torch.float32).to(x.dtype)


def test_a_row_that_is_all_padding_is_finite_and_softmax_is_float64():
    inputs = {"x": np.linspace(-1, 1, 8).reshape(2, 4), "attention_mask": np.array([[0, 0, 0, 0], [1, 1, 1, 1]])}
    found = reference.float64_outputs(reference.as_reference(Scores()), inputs)["output"]
    assert found[0] == pytest.approx([0.25] * 4)
    scores = inputs["x"][1] * np.float64(np.float32(1 / 3))
    assert found[1] == pytest.approx(np.exp(scores) / np.exp(scores).sum(), abs=1e-14)


class Upcasts(torch.nn.Module):
    """What half precision is widened by, in the ways in which modelling code asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        third = x / self.weight
        places = torch.arange(x.shape[-1]).float() @ third.float()
        return (
            third.float(),
            third.to(torch.float32),
            third.to(dtype=torch.float32),
            third.sum(dtype=torch.float32),
            places,
        )


def test_what_asks_for_float32_is_not_narrowed_in_the_reference():
    x = np.linspace(1, 2, 4)
    found = list(reference.float64_outputs(reference.as_reference(Upcasts()), {"x": x}).values())
    for one in found[:3]:
        assert one == pytest.approx(x / 3, abs=1e-15)
    assert found[3] == pytest.approx((x / 3).sum(), abs=1e-14)
    assert found[4] == pytest.approx(np.arange(4) @ (x / 3), abs=1e-14)


def test_a_checkpoint_is_told_from_another_by_its_files(monkeypatch):
    def identity(revision: str) -> str:
        monkeypatch.setattr(reference, "revision_of", lambda model: revision)
        return reference.identity_of(model())

    assert len({identity(""), identity("1f2e"), identity("3d4c")}) == 3


class Root(torch.nn.Module):
    """Its output at 0 is a number, its slope there none."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": (self.weight * x).sqrt()}


def test_nothing_is_held_against_gradients_that_are_no_numbers():
    made, given = reference.as_reference(Root()), {"x": np.ones(2)}
    assert reference.float64_outputs(made, given)["out"].tolist() == [0.0, 0.0]
    with pytest.raises(ReferenceNotFinite, match="not finite in weight"):
        reference.float64_gradients(made, given)


def test_room_for_gradients_is_that_of_one_in_float32_and_two_in_float64():
    made = model()
    assert reference.bytes_for_gradients(made) == (2 * 2 + 2) * (4 + 8 + 8)


def test_another_configuration_of_the_same_weights_is_another_identity():
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __repr__(self) -> str:
            return "Config"  # what a module holds is told by its words

        def to_json_string(self, *, use_diff: bool) -> str:
            return f'{{"scale": {self.scale}, "diff": {str(use_diff).lower()}}}'

    def identity(scale: float) -> str:
        made = model()
        made.__dict__["config"] = Config(scale)
        return reference.identity_of(made)

    assert identity(1.0) == identity(1.0)
    assert identity(1.0) != identity(2.0)
