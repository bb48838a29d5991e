"""Whether a model fits into the memory of a device, and the smallest change with which it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generators.compatibility.memory_fit import (
    AvailableMemory,
    MemoryAnatomy,
    MemoryEstimate,
    MemoryRequest,
    changes,
    fit,
    parse_size,
)
from generators.models.classifier import classify_type
from generators.recipes import memory_answer
from hardware.errors import UsageError

GB = 10**9
ANATOMY = MemoryAnatomy(
    parameters=7 * GB, linear=6 * GB, largest=GB // 10, block=GB // 5, beside=GB // 2
)  # about a model of seven billion


def estimate(weights: int, *, activations: int = 0, cache: int = 0, **asked) -> MemoryEstimate:
    request = {"mode": "generation", "precision": "bfloat16", "batch": 1, "context": 4096} | asked
    nothing = dict.fromkeys(("gradients", "optimiser", "inputs", "workspace"), 0)
    return MemoryEstimate(
        request=MemoryRequest(**request), weights=weights, activations=activations, cache=cache, **nothing
    )


def room(size: int) -> AvailableMemory:
    return AvailableMemory(name="a device", available=size)


def test_sizes_are_read_as_people_write_them():
    sizes = {"24GiB": 24 * 2**30, "80 GB": 80 * GB, "1.5gb": 1_500_000_000, "4096": 4096}
    assert {text: parse_size(text) for text in sizes} == sizes
    for text in ("", "0", "-3GB", "24 apples", "24GiBB", "1e9", "nan"):
        with pytest.raises(UsageError, match="isn't a memory size") as refused:
            parse_size(text)
        assert "24GiB" in refused.value.fix


def test_a_model_that_fits_needs_no_change_and_may_be_tight():
    roomy, tight = (fit(estimate(10 * GB), [], ANATOMY, room(size * GB)) for size in (20, 10))
    assert (roomy.fits, roomy.is_tight, roomy.change, roomy.missing) == (True, False, None, 0)
    assert (tight.fits, tight.is_tight) == (True, True)
    unknown = fit(
        estimate(GB), [], ANATOMY, AvailableMemory(name="openvino", available=None, why_unknown="no driver")
    )
    assert unknown.fits is None
    assert "unknown" in unknown.text
    assert "no driver" in unknown.text
    hopeless = fit(estimate(14 * GB, activations=9 * GB), [], ANATOMY, room(GB))
    assert hopeless.change is None
    assert "No known change" in hopeless.text


def test_smaller_batch_goes_first_and_is_the_largest_that_fits():
    base = estimate(10 * GB, activations=8 * GB, batch=8)
    one = estimate(10 * GB, activations=GB, batch=1)
    answer = fit(base, [one], ANATOMY, room(15 * GB))
    assert answer.missing == 3 * GB
    assert answer.change is not None
    assert (answer.change.kind, answer.change.what) == ("batch", "reduce the batch to 5")
    assert answer.change.needed == 15 * GB


def test_half_precision_goes_before_eight_bits_and_eight_before_four():
    base, half = estimate(28 * GB, precision="float32"), estimate(14 * GB)
    kinds = [fit(base, [half], ANATOMY, room(size)).change.kind for size in (20 * GB, 9 * GB, 6 * GB)]
    assert kinds == ["precision", "int8", "int4"]
    needed = {one.kind: one.needed for one in changes(estimate(14 * GB), [], ANATOMY, GB)}
    # What isn't linear stays in two bytes, and the largest matrix is widened; four bits have 2 bytes for each 128.
    assert needed["int8"] == 2 * GB + GB // 5 + 6 * GB
    assert needed["int4"] == 2 * GB + GB // 5 + 3 * GB + 6 * GB // 64


def test_a_change_is_offered_only_if_the_mode_and_the_device_allow_it():
    training = changes(estimate(14 * GB, mode="training"), [], ANATOMY, GB)
    assert {one.kind for one in training} == {"two devices"}
    on_host = [one.what for one in changes(estimate(20 * GB), [], ANATOMY, 5 * GB, on_host=True)]
    assert any("offload the layers to disk" in what for what in on_host)
    assert not any("host" in what or "two" in what for what in on_host)


def test_a_step_of_adamw_holds_one_more_copy_of_the_weights_unless_on_the_host():
    """Measured on an H100 for models with large weights: 5.0 times the weights (docs/evidence/cuda-session.json)."""
    base = replace(estimate(4 * GB, activations=GB, mode="training"), optimiser=8 * GB)
    assert fit(base, [], ANATOMY, room(100 * GB)).needed == 20 * GB
    assert fit(base, [], ANATOMY, replace(room(100 * GB), is_host=True)).needed == 13 * GB
    long = replace(base, activations=40 * GB)  # the peak is in the backward pass
    assert fit(long, [], ANATOMY, room(100 * GB)).needed == 52 * GB


def test_if_one_change_is_not_enough_several_are_combined_the_fewest_first():
    base = estimate(4 * GB, activations=40 * GB, mode="training", precision="float32", batch=8)
    others = [
        estimate(4 * GB, activations=10 * GB, mode="training", precision="float32"),
        estimate(2 * GB, activations=20 * GB, mode="training", batch=8),
        estimate(2 * GB, activations=5 * GB, mode="training"),
        estimate(2 * GB, activations=1 * GB, mode="training", context=1024),
    ]
    assert fit(base, others, ANATOMY, room(8 * GB)).change.what == "reduce the batch to 1, run it in bfloat16"
    shortest = fit(base, others, ANATOMY, room(3 * GB)).change
    assert shortest.what == "reduce the batch to 1, run it in bfloat16, shorten the context to 1024 tokens"
    assert (shortest.kind, shortest.needed) == ("several", 3 * GB)
    on_two = fit(base, others, ANATOMY, room(5 * GB // 2)).change
    assert on_two.what.endswith("split the layers over two such devices")


def test_an_estimate_that_cannot_be_cached_is_returned_and_cached_as_soon_as_it_can(monkeypatch, caplog):
    answer = {"estimates": [estimate(10 * GB).to_dict()], "anatomy": vars(ANATOMY), "notes": []}
    requests = []

    def child(*arguments: object) -> dict[str, object]:
        requests.append(arguments)
        return answer

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory_answer, "memory_in_child", child)
    with monkeypatch.context() as patch:
        patch.setattr(memory_answer, "write_whole", full)
        assert memory_answer.memory_answer(classify_type("bert"), {}).estimates == (estimate(10 * GB),)
    assert "No space left" in caplog.text
    for _ in range(2):
        assert memory_answer.memory_answer(classify_type("bert"), {}).estimates == (estimate(10 * GB),)
    assert len(requests) == 2
