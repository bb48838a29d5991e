"""The key of references and exports: it changes with everything that computes."""

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


def test_an_edit_of_shared_modelling_code_is_another_identity(tmp_path, monkeypatch):
    shared = tmp_path / "masking_utils.py"
    shared.write_text("right = True\n", encoding="utf-8")
    monkeypatch.setattr(reference, "_SHARED_SOURCES", (str(shared),))
    before = reference.identity_of(model())
    shared.write_text("right = False\n", encoding="utf-8")
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
