"""References in float64, and the identity under which references and exports are cached."""

from __future__ import annotations

import copy
import functools
import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hardware.compare import ReferenceNotFinite
from hardware.evidence.record import Outcome
from hardware.testing import reference
from hardware.testing.reference import as_reference, float64_gradients, float64_outputs, identity_of
from hardware.testing.seeded_weights import fill
from hardware.testing.widened_weights import copy_over, widen


def model(scale: float = 1.0, **held: Any) -> torch.nn.Module:
    made = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(made.weight, scale)
    torch.nn.init.zeros_(made.bias)
    for name, value in held.items():
        made.__dict__[name] = value
    return made


@dataclass
class Options:
    scale: int


def scaling(by: float) -> Any:
    return lambda x: x * by


def nested(last: Any) -> list[Any]:
    found: list[Any] = [{"deep": (1, {last, "b"})}]
    found.append(found)
    return found


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (1, 1.0),
    (True, 1),
    ("a", "b"),
    (None, 0),
    ([1, 2], [2, 1]),
    (nested("a"), nested("c")),
    ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
    (torch.float32, torch.float16),
    (torch.full((3,), 1.0), torch.full((3,), 1.5)),
    (torch.ones(3).bfloat16(), torch.ones(3)),
    (np.ones(2), np.ones(2, np.float32)),
    ([torch.ones(2)], [torch.zeros(2)]),
    (Options(1), Options(2)),
    (SimpleNamespace(scale=1), SimpleNamespace(scale=2)),
    (Outcome.PASSED, Outcome.FAILED),
    (torch.relu, torch.tanh),
    (lambda x: x + 1, lambda x: x - 1),
    (scaling(1.0), scaling(2.0)),
    (functools.partial(torch.sum, dim=0), functools.partial(torch.sum, dim=1)),
]


def test_an_identity_changes_with_all_that_a_module_holds() -> None:
    assert identity_of(model()) == identity_of(model())
    assert identity_of(model()) != identity_of(model(1.1))
    for one, two in DIFFERENT:
        assert identity_of(model(held=one)) == identity_of(model(held=copy.deepcopy(one))), one
        assert identity_of(model(held=one)) != identity_of(model(held=two)), (one, two)
    kinds = (torch.nn.ReLU(), torch.nn.GELU(), torch.nn.GELU(approximate="tanh"))
    assert len({identity_of(torch.nn.Sequential(model(), one)) for one in kinds}) == 3
    buffers = []
    for names, value in (("ab", 1.0), ("ba", 1.0), ("ab", 2.0)):
        buffers.append(model())
        for name in names:
            buffers[-1].register_buffer(name, torch.full((ord(name),), value), persistent=False)
    first, second, third = map(identity_of, buffers)
    assert first == second != third, "buffers count, and their order doesn't"
    locked = (model(lock=threading.Lock(), name_or_path=path) for path in ("here", "there"))
    assert len(set(map(identity_of, locked))) == 1, "where it came from, and what has no value, doesn't count"


def test_an_identity_changes_with_configuration_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __repr__(self) -> str:
            return "Config"

        def to_json_string(self, *, use_diff: bool) -> str:
            return f'{{"scale": {self.scale}, "diff": {str(use_diff).lower()}}}'

    assert len({identity_of(model(config=Config(scale))) for scale in (1.0, 1.0, 2.0)}) == 2
    found = set()
    for revision in ("", "1f2e", "3d4c"):
        monkeypatch.setattr(reference, "revision_of", lambda model, revision=revision: revision)
        found.add(identity_of(model()))
    assert len(found) == 3


def test_an_identity_changes_with_code_that_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differs(file: Path, made: Callable[[], torch.nn.Module]) -> bool:
        before = identity_of(made())
        assert identity_of(made()) == before
        file.write_text("SCALE = 2\n", encoding="utf-8")
        return identity_of(made()) != before

    package = tmp_path / "own_package_of_a_user"
    package.mkdir()
    files = [package / "scales.py", tmp_path / "masking_utils.py", tmp_path / "own.py"]
    for file in files:
        file.write_text("SCALE = 1\n", encoding="utf-8")
    (package / "__init__.py").write_text("from .net import Net\n", encoding="utf-8")
    code = "import torch\nfrom .scales import SCALE\n\nclass Net(torch.nn.Linear):\n    pass\n"
    (package / "net.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    net = importlib.import_module(package.name).Net(1, 1)
    assert differs(files[0], lambda: net), "another file of the user's package"
    monkeypatch.setattr(reference, "_SHARED_SOURCES", {"transformers": (str(files[1]),)})
    assert differs(files[1], model), "modeling code of the library"
    root = Path(reference.__file__).parents[1]
    assert all((root / name).is_file() for name in reference._OWN_SOURCES)
    assert "testing/reference.py" in reference._OWN_SOURCES
    monkeypatch.setattr(reference, "_OWN_SOURCES", (str(files[2]),))
    assert differs(files[2], model), "code that makes a reference"


class Scores(torch.nn.Module):
    """Attention weights as eager modeling code computes them: the softmax asks for float32."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0 / 3.0))

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = torch.where(attention_mask.bool(), 0.0, torch.finfo(x.dtype).min)
        return torch.nn.functional.softmax(x * self.scale + hidden, dim=-1, dtype=torch.float32).to(x.dtype)


class Upcasts(torch.nn.Module):
    """Widens half precision in the ways in which modeling code asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        third = x / self.weight
        places = torch.arange(x.shape[-1]).float() @ third.float()
        whole = third.sum(dtype=torch.float32)
        return third.float(), third.to(torch.float32), third.to(dtype=torch.float32), whole, places


def test_what_asks_for_float32_is_not_narrowed_in_a_reference() -> None:
    inputs = {"x": np.linspace(-1, 1, 8).reshape(2, 4), "attention_mask": np.array([[0, 0, 0, 0], [1, 1, 1, 1]])}
    found = float64_outputs(as_reference(Scores()), inputs)["output"]
    assert found[0] == pytest.approx([0.25] * 4), "a row that is all padding is finite"
    scores = inputs["x"][1] * np.float64(np.float32(1 / 3))
    assert found[1] == pytest.approx(np.exp(scores) / np.exp(scores).sum(), abs=1e-14)
    x = np.linspace(1, 2, 4)
    *thirds, whole, places = float64_outputs(as_reference(Upcasts()), {"x": x}).values()
    for one in thirds:
        assert one == pytest.approx(x / 3, abs=1e-15)
    assert whole == pytest.approx((x / 3).sum(), abs=1e-14)
    assert places == pytest.approx(np.arange(4) @ (x / 3), abs=1e-14)


def test_gradients_that_are_not_finite_are_no_reference() -> None:
    class Root(torch.nn.Module):
        """Its output at 0 is finite, its slope there isn't."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": (self.weight * x).sqrt()}

    made, given = as_reference(Root()), {"x": np.ones(2)}
    assert float64_outputs(made, given)["out"].tolist() == [0.0, 0.0]
    with pytest.raises(ReferenceNotFinite, match="not finite in weight"):
        float64_gradients(made, given)
    assert reference.bytes_for_gradients(model()) == (2 * 2 + 2) * (4 + 8 + 8), "one in float32, two in float64"


class Everything(torch.nn.Module):
    """Tied weights, a convolution, a buffer, a bare parameter, and weights used outside their own module."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.mix = torch.nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.gate = torch.nn.Parameter(torch.ones(8))
        self.head = torch.nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]))
        self.register_buffer("places", torch.arange(8))

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.norm(self.table(input_ids)) * self.scale + self.gate[self.places]
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x * torch.sigmoid(self.mix.weight.mean() + self.norm.weight[None, :] ** 2)
        return {"logits": self.head(x), "expanded": self.gate.expand(2, 8) @ self.table.weight.t()}


INPUTS = {"input_ids": np.arange(12).reshape(2, 6) % 16}


def test_widened_weights_give_the_numbers_of_a_whole_float64_copy() -> None:
    narrow = fill(Everything(), gain=1.0)
    plain, wide = as_reference(copy.deepcopy(narrow)), as_reference(copy_over(narrow), large=0)
    assert next(plain.parameters()).dtype == next(wide.parameters()).dtype == torch.float64
    for compute in (float64_outputs, float64_gradients):
        want, got = compute(plain, INPUTS), compute(wide, INPUTS)
        assert sorted(got) == sorted(want)
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-15, atol=1e-15 * np.abs(want[name]).max())
    first = float64_outputs(wide, INPUTS)["logits"].copy()
    float64_outputs(wide, {"input_ids": INPUTS["input_ids"][::-1].copy()})
    np.testing.assert_array_equal(float64_outputs(wide, INPUTS)["logits"], first)
    for _ in range(2):
        gradients = float64_gradients(wide, INPUTS)
        count, norm = reference.gradient_summary(wide, INPUTS, {})
        assert count == len(gradients) > 5
        assert norm == pytest.approx(np.sqrt(sum(np.square(one).sum() for one in gradients.values())), rel=1e-12)
        wide.gate.requires_grad_(False)
    assert all(parameter.grad is None for parameter in wide.parameters())
    with torch.no_grad():
        narrow.attention.out_proj.weight[0, 0] += 0.1
    wrong = float64_outputs(as_reference(copy_over(narrow), large=0), INPUTS)["logits"]
    assert np.abs(first - wrong).max() > 1e-4, "a fault in one weight is detected"


def test_widened_weights_are_not_copied_and_stay_as_they_are() -> None:
    narrow = fill(Everything(), gain=1.0)
    before = {name: value.clone() for name, value in narrow.state_dict().items()}
    wide = widen(copy_over(narrow))
    for mine, theirs in zip(wide.parameters(), narrow.parameters(), strict=True):
        assert mine.narrow.data_ptr() == theirs.data_ptr()
    assert wide.head.weight is wide.table.weight
    assert "head.weight" not in dict(wide.named_parameters())
    float64_gradients(wide, INPUTS)
    assert all(torch.equal(narrow.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in narrow.parameters())
    with torch.no_grad(), pytest.raises(RuntimeError, match="would overwrite weights"):
        wide.gate.mul_(2)
