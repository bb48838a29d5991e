"""What `hwcompat fit` says about estimates: the answer first, then variants with their parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.memory_fit import (
    AvailableMemory,
    MemoryAnatomy,
    MemoryEstimate,
    MemoryRequest,
    fit,
    on_devices,
)
from generators.recipes.memory_answer import MemoryAnswer
from generators.recipes.memory_variants import ModelFit, rooms_here, variants
from hardware.errors import BackendUnavailable
from hardware.inventory.target_status import NumberedCard, TargetStatus
from reports import fit_text as module
from reports.fit_text import fit_json, fit_text

GIB = 2**30
MIB = 2**20
ANATOMY = MemoryAnatomy(
    parameters=8_030_261_248, linear=6_979_321_856, largest=58_720_256, block=218_112_000, beside=1_050_677_248
)
"""That of Llama-3-8B."""


def estimate(**changed) -> MemoryEstimate:
    """Llama-3-8B with 8,192 tokens, whose cache and activations grow with batch and context."""
    request = {"mode": "generation", "precision": "bfloat16", "batch": 1, "context": 8192} | changed
    rows = request["batch"] * request["context"] / 8192
    parts = {"gradients": 0, "optimiser": 0, "inputs": 0, "workspace": 0}
    parts |= {"weights": 2 * ANATOMY.parameters, "cache": int(rows * GIB), "activations": int(rows * 932 * MIB)}
    return MemoryEstimate(request=MemoryRequest(**request), **parts)


def size(name: str, available: int) -> AvailableMemory:
    return AvailableMemory(name=name, available=available)


def fitted(*rooms: AvailableMemory, estimates: tuple[MemoryEstimate, ...] = (estimate(),), **changed) -> ModelFit:
    answer = MemoryAnswer(estimates=estimates, anatomy=ANATOMY, notes=())
    fits = tuple(fit(estimates[0], estimates[1:], ANATOMY, room) for room in rooms)
    rows = tuple(variants(answer))
    return ModelFit(
        **{"model": "Llama-3-8B", "reads_text": True, "variants": rows, "fits": fits, "notes": ()} | changed
    )


def test_the_first_line_is_the_answer_and_each_variant_has_its_parts():
    lines = fit_text(fitted(size("24 GiB", 24 * GIB))).splitlines()
    assert lines[0] == ("Llama-3-8B, bfloat16, 8,192 tokens, batch 1: 16.9 GiB; fits a 24 GiB device (7.1 GiB left)")
    table = [line.split("  ") for line in lines[2:6]]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert rows[0] == ["variant", "weights", "activations", "cache", "total", "fits"]
    assert rows[1] == ["as requested", "15 GiB", "932 MiB", "1 GiB", "16.9 GiB", "yes"]
    assert [row[0] for row in rows[2:]] == ["int8", "int4"]


def test_a_model_that_is_too_large_shows_what_would_fit():
    base = estimate(batch=8)
    smaller = (base, estimate(batch=1), estimate(batch=8, context=4096), estimate(batch=1, context=4096))
    found = fitted(size("80 GB", 80 * 10**9), size("18 GB", 18 * 10**9), estimates=smaller)
    text = fit_text(found)
    assert "fits an 80 GB device (" in text.splitlines()[0]
    assert "doesn't fit an 18 GB device (" in text.splitlines()[0]
    kinds = {", ".join(one.differences): one for one in found.variants}
    assert [*kinds][1:6] == ["int8", "int4", "batch 4", "batch 2", "batch 1"]
    assert kinds["batch 4"].estimate.total == pytest.approx(estimate(batch=4).total, abs=8)
    # 15.0 + 0.9 + 1.0 GiB are 18.1 GB; half the tokens are enough.
    assert [kinds[name].fits(size("", 18 * 10**9)) for name in ("batch 1", "4,096 tokens, batch 1")] == [False, True]
    assert "only 80 GB" in text
    none = fit_text(fitted(size("3 GiB", 3 * GIB), estimates=smaller))
    assert "No variant fits a 3 GiB device: " in none


def test_training_has_gradients_and_optimizer_and_text_without_context_says_none():
    training = fitted(
        size("24 GiB", 24 * GIB),
        estimates=(
            MemoryEstimate(
                **dict.fromkeys(estimate().parts, 0) | {"weights": GIB, "optimiser": 2 * GIB},
                request=MemoryRequest(mode="training", precision="float32", batch=2, context=16),
            ),
        ),
        reads_text=False,
    )
    text = fit_text(training)
    assert text.splitlines()[0].startswith("Llama-3-8B, float32, batch 2, training with AdamW: 5 GiB; fits")
    assert training.variants[0].parts(on_host=False)["gradients"] == GIB
    assert "int8" not in text
    assert "cache" not in text


def test_json_is_as_its_schema_says():
    schema = json.loads((Path(module.__file__).parent / "schemas" / "fit.json").read_text(encoding="utf-8"))
    data = fit_json(fitted(size("24 GiB", 24 * GIB), size("8 GiB", 8 * GIB)))
    jsonschema.validate(data, schema)
    assert [one["fits"] for one in data["devices"]] == [True, False]
    assert [one["fits"] for one in data["variants"]] == [[True, False], [True, False], [True, True]]
    first = data["variants"][0]
    assert first["total"] == sum(first[name] for name in ("weights", "activations", "cache"))


def test_targets_of_unknown_memory_are_left_out_and_refused_if_named():
    statuses = [
        TargetStatus(target="cpu", expected=True, memory_bytes=8 * GIB),
        TargetStatus(target="openvino", expected=True),
        TargetStatus(target="cuda", expected=False, reason="no NVIDIA GPU is seen by a driver"),
    ]
    assert [(one.name, one.available, one.is_host) for one in rooms_here(statuses, [])] == [("cpu", 8 * GIB, True)]
    for name, why in (("openvino", "unknown"), ("cuda:0", "no NVIDIA GPU")):
        with pytest.raises(BackendUnavailable, match=why):
            list(rooms_here(statuses, [name]))


def test_a_gpu_s_memory_is_that_of_one_card_without_what_cuda_takes():
    """The range is of an H100, whose measured points made the file."""
    statuses = [TargetStatus(target=name, expected=True, memory_bytes=20 * GIB) for name in ("cuda", "xpu")]
    cuda, xpu = rooms_here(statuses, [])
    assert (xpu.available, xpu.beside) == (20 * GIB, None)
    low, high = cuda.beside.ends
    assert 500 * MIB < low < high < GIB
    assert cuda.available == 20 * GIB - high
    text = fit_text(fitted(cuda))
    assert "Left out of the memory of cuda: 760 MiB to 798 MiB for CUDA's context" in text
    assert "captured CUDA graphs" in text
    assert "device's driver" not in text
    assert "device's driver and runtime (760 MiB" in " ".join(fit_text(fitted(xpu)).split())
    assert "context" not in fit_text(fitted(replace(xpu, is_host=True))).partition("\n\n")[2]


def test_estimates_of_training_on_a_gpu_are_tight_earlier():
    (cuda,) = rooms_here([TargetStatus(target="cuda", expected=True, memory_bytes=80 * GIB)], [])
    needed = estimate(mode="training")
    total = replace(needed, workspace=int(cuda.available / 1.2) - needed.total)
    assert fit(total, (), ANATOMY, cuda).is_tight
    assert not fit(total, (), ANATOMY, replace(cuda, beside=None)).is_tight
    found = fitted(cuda, estimates=(estimate(mode="training"),))
    assert "0.64 to 1.24 times the estimate" in " ".join(fit_text(found).split())


def test_an_index_means_that_card_and_what_programs_hold_there_is_told():
    cards = (NumberedCard(index=0, memory_bytes=40 * GIB), NumberedCard(index=1, memory_bytes=20 * GIB))
    status = TargetStatus(target="cuda", expected=True, memory_bytes=20 * GIB)

    def used(vendor: str, card: int) -> int:
        return {("NVIDIA", 0): 30 * GIB, ("NVIDIA", 1): 0}[vendor, card]

    first, second = rooms_here([status], ["cuda:0", "cuda:1"], lambda _: cards, used)
    assert (first.name, first.available - second.available, first.used) == ("cuda:0", 20 * GIB, 30 * GIB)
    (smallest,) = rooms_here([status], ["cuda"], lambda _: cards, used)
    assert (smallest.available, smallest.used) == (second.available, None)  # which card it is isn't said
    with pytest.raises(BackendUnavailable, match="this machine has 2"):
        list(rooms_here([status], ["cuda:2"], lambda _: cards))
    text = " ".join(fit_text(fitted(first, second)).split())
    assert "Programs hold 30 GiB of cuda:0 now: 7.7 GiB are missing until they end." in text
    assert "of cuda:1 now" not in text
    assert "reserves 1.00 to 1.31 times the peak" in text
    assert "blocks of 16 tokens of KV cache" in text
    assert fit_json(fitted(first))["devices"][0]["used_now"] == 30 * GIB


def test_several_devices_share_what_a_model_holds_but_not_its_activations():
    whole = estimate()
    halves = on_devices(whole, ANATOMY, 2)
    assert on_devices(whole, ANATOMY, 1) == whole.total
    assert whole.total / 2 < halves < whole.total
    assert on_devices(whole, ANATOMY, 8) - whole.activations < (whole.total - whole.activations) / 5
