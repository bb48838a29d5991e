"""An export is compared with torch: in its example, other shapes and values, and in decoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_exports import INPUTS, Runs

from hardware.backends.base import ModelInput, Unsupported
from hardware.evidence.record import Stage
from hardware.export import Exported, verify_export
from hardware.export.routes import export_failure, opened
from hardware.export.verify_export import Proof, follows_length, keep_passes, was_of

OTHER = {"x": np.ones((4, 14), np.float32)}
VALUES = {"x": INPUTS["x"][::-1] + 1}


def doubled(inputs: Any) -> Any:
    return inputs, {"out": 2.0 * inputs["x"]}


def proof(**facts: Any) -> Proof:
    """Of a model that doubles its input and decodes token 2 four times."""
    known = {
        "model_input": ModelInput(model=None, task="none", identity="0"),
        "example": INPUTS,
        "outputs": doubled(INPUTS)[1],
        "other": doubled(OTHER),
        "values": doubled(VALUES),
        "decoded": Runs(2).generate(INPUTS, steps=4),
        "runtime": "a runtime",
    }
    return Proof(**{**known, **facts})


def refusal(check: Callable[..., Any], runs: Runs, made: Exported) -> tuple[str, str]:
    """Why a check refuses an export, and the error type."""
    with pytest.raises(Unsupported) as caught:
        check(runs, made)
    assert caught.value.stage is Stage.CONVERT
    return str(caught.value), caught.value.error_type


def test_an_export_that_gives_torchs_numbers_is_right_up_to_a_few_roundings_of_float32(tmp_path: Path) -> None:
    made = Exported(folder=tmp_path, method="way", decodes=True)
    held = proof()
    assert held.of_all(Runs(2), made) == 0.0
    held.of_other_values(Runs(2), made)
    assert held.of_decoding(Runs(2), made) == 0.0
    assert 1e-5 < held.of_forward(Runs(2 * (1 + 2e-5)), made) < 5e-5
    for check in (held.of_all, held.of_forward, held.of_other_shapes, held.of_other_values):
        text, error_type = refusal(check, Runs(2 * (1 + 5e-4)), made)
        assert "the way export gives different numbers than torch" in text
        assert "(a runtime)" in text
        assert error_type == "conversion_wrong"


def test_an_export_that_is_right_in_part_is_refused_with_the_part_that_is_wrong(tmp_path: Path) -> None:
    made = Exported(folder=tmp_path, method="way", decodes=True)
    frozen = Runs(2, lambda x: x.shape == (2, 16))
    broken = ("export_failed", "wrong")
    assert refusal(proof().of_forward, Runs(2, lambda x: False), made)[1] == broken[0]
    text, error_type = refusal(proof().of_all, frozen, made)
    assert "failed to run for other shapes on a runtime: RuntimeError: shapes are frozen" in text
    assert error_type == "export_failed"
    text, error_type = refusal(proof(other=None).of_other_shapes, Runs(2), made)
    assert "the way export can't be checked with other shapes" in text
    assert error_type == "conversion_wrong"
    proof(other=None, values=None).of_all(frozen, made)
    proof(values=None).of_other_values(Runs(3), made)
    text, error_type = refusal(proof().of_all, Runs(2, decodes=3), made)
    assert "gives different numbers" in text
    assert error_type == "conversion_wrong"
    text, error_type = refusal(proof().of_all, Runs(2, decodes=0), made)
    assert "decoding with the way export failed on a runtime: RuntimeError: no cache" in text
    assert error_type == "export_failed"
    proof().of_all(Runs(2, decodes=0), Exported(folder=tmp_path, method="way", decodes=False))
    with pytest.raises(Unsupported, match="no decoding result to compare the way export with: no such") as caught:
        proof(decoded=None, why_not_decoded="no such").of_decoding(Runs(2), made)
    assert (caught.value.error_type, caught.value.stage) == ("unknown", Stage.RUN)


def test_masked_outputs_of_an_export_are_not_compared(tmp_path: Path) -> None:
    made = Exported(folder=tmp_path, method="way")
    model_input = ModelInput(model=None, task="none", identity="0", masked_by={"out": "attention_mask"})
    example = {"x": INPUTS["x"], "attention_mask": np.array([[1] * 16, [1] * 9 + [0] * 7])}

    class Padded(Runs):
        def __call__(self, inputs: Any) -> Any:
            result = super().__call__(inputs)["out"].copy()
            result[1, 9:] = 100.0
            return {"out": result}

    held = {"example": example, "outputs": doubled(example)[1]}
    assert proof(model_input=model_input, **held).of_forward(Padded(2), made) == 0.0
    assert refusal(proof(**held).of_forward, Padded(2), made)[1] == "conversion_wrong"


def test_an_exporters_reason_names_operators_that_it_cannot_convert_and_is_cut(tmp_path: Path) -> None:
    refused = {
        "No conversion rule found for operations:": "no conversion rule for",
        "Conversion is failed for:": "the conversion rule fails for",
    }
    for text, says in (
        (
            "Summary:\n-- No conversion rule found for operations: aten::diff\nmore",
            "no conversion rule for aten::diff",
        ),
        ("Summary:\n-- Conversion is failed for: aten::unfold\n", "the conversion rule fails for aten::unfold"),
    ):
        found = export_failure(RuntimeError(text), refused)
        assert (str(found), found.error_type, found.stage) == (says, "unsupported_operator", Stage.EXPORT)
    found = export_failure(RuntimeError("word \n" * 2_000), refused)
    assert (found.error_type, found.stage) == ("export_failed", Stage.EXPORT)
    assert str(found).startswith("RuntimeError: word word")
    assert len(str(found)) < 700

    def opener(made: Exported) -> Any:
        raise AttributeError("no attribute 'pad_token_id'")

    with pytest.raises(Unsupported, match=r"the way export can't be opened: AttributeError.*pad_token_id") as caught:
        opened(opener, Exported(folder=tmp_path, method="way"))
    assert (caught.value.error_type, caught.value.stage) == ("export_failed", Stage.CONVERT)


@pytest.fixture
def torch_gives(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], Any]], None]:
    """Let torch give these outputs for inputs, and decode nothing."""

    def install(compute: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(verify_export, "torch_outputs", lambda model_input, inputs: compute(inputs))
        monkeypatch.setattr(verify_export, "decoded_by_torch", lambda model_input, inputs: (None, ""))

    return install


def test_other_inputs_have_another_batch_and_length_no_padding_and_other_values(torch_gives: Any) -> None:
    model_input = ModelInput(model=None, task="none", identity="0")
    mask = np.array([[1] * 6, [1] * 4 + [0] * 2])
    image = np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    text = {"input_ids": np.arange(12).reshape(2, 6), "attention_mask": mask, "pixel_values": image}

    def shapes_of(accepts: Callable[[int], bool], example: Any = text) -> Any:
        def compute(inputs: Any) -> Any:
            if not accepts(inputs["input_ids"].shape[1]):
                raise ValueError("another length")
            return {"out": inputs["input_ids"].astype(float)}

        torch_gives(compute)
        return Proof.of(model_input, example, "any", decodes=False)

    other = shapes_of(lambda length: True).other
    assert other is not None
    inputs, outputs = other
    assert {name: one.shape for name, one in inputs.items()} == {
        "input_ids": (4, 4),
        "attention_mask": (4, 4),
        "pixel_values": (4, 3, 4),
    }
    assert inputs["attention_mask"].tolist() == [[1] * 4, [1, 1, 0, 0], [1] * 4, [1] * 4]
    assert np.array_equal(outputs["out"], inputs["input_ids"])
    longer = shapes_of(lambda length: length >= 6).other
    assert longer is not None
    assert longer[0]["input_ids"].tolist()[0] == [0, 1, 2, 3, 4, 5, 5, 5]
    held = shapes_of(lambda length: length == 6)
    assert held.other is None
    assert held.values is not None
    values = held.values[0]
    assert np.array_equal(values["input_ids"], text["input_ids"][::-1])
    assert np.array_equal(values["attention_mask"], mask[::-1])
    np.testing.assert_allclose(values["pixel_values"], image[::-1] * 0.9, rtol=1e-6)
    alone = {"input_ids": np.ones((1, 6), np.int64)}
    assert shapes_of(lambda length: length == 6, alone).values is None, "no other values can be made"
    assert [follows_length(one) for one in (mask, np.ones((2, 3, 4)), np.ones((2, 3, 4), int))] == [True, False, True]


def test_an_export_is_of_the_module_that_gives_the_same_as_it_did(torch_gives: Any, tmp_path: Path) -> None:
    held = proof()
    keep_passes(tmp_path, held)
    decoded = held.decoded
    for factor, kept, right in ((2.0, decoded, True), (5.0, decoded, False), (2.0, None, False)):
        torch_gives(lambda inputs, factor=factor: {"out": factor * inputs["x"]})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(verify_export, "decoded_by_torch", lambda *_, kept=kept: (kept, ""))
            assert was_of(tmp_path, held.model_input) is right
    torch_gives(lambda inputs: doubled(inputs)[1] if len(inputs["x"]) == 2 else {"out": inputs["x"]})
    (tmp_path / "decoded.npz").unlink()
    assert not was_of(tmp_path, held.model_input), "other numbers for other shapes"
    torch_gives(lambda inputs: doubled(inputs)[1])
    assert was_of(tmp_path, held.model_input), "an export that doesn't decode isn't compared in decoding"
