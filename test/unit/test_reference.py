"""The key of references and exports: it changes with everything that computes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hardware.testing import reference


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
    assert {"backends/_tensors.py", "testing/reference.py"} <= set(reference._OWN_SOURCES)
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
