"""Whether a model fits into devices, as text and as JSON (`hwcompat fit`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.memory_fit import AvailableMemory, Fit, beside_model
from hwcompat.generators.recipes.memory_variants import MemoryVariant, ModelFit
from hwcompat.hardware.plain_text import WIDTH, columns, printable, size_text, wrapped
from hwcompat.hardware.values import data_file

SCHEMA_VERSION = 1
_ALWAYS = ("weights", "activations")
_QUANTIZED = "int8, int4: only weights of linear layers; one layer at a time is dequantized (in activations)."
_ENGINES = Path(__file__).with_name("engines.toml")
_NEVER_COUNTED = (
    "what other programs hold, captured CUDA graphs, attention without a fused kernel, and what an engine reserves "
    "in advance"
)
_LATER = "Parts are those at the peak: gradients are computed while activations are released."


def fit_text(found: ModelFit, *, width: int = WIDTH) -> str:
    """Return the answer in one line, then a table of the variants with their parts, then notes."""
    variants = [(one, one.parts(on_host=found.on_host)) for one in found.variants]
    parts = [name for name in variants[0][1] if name in _ALWAYS or any(sizes[name] for _, sizes in variants)]
    rows = [
        [
            ", ".join(one.differences) or "as requested",
            *(size_text(sizes[name]) if sizes[name] else "-" for name in parts),
            size_text(sum(sizes.values())),
            _fits(found, one),
        ]
        for one, sizes in variants
    ]
    table = columns(["variant", *parts, "total", "fits"], rows, right=range(1, len(parts) + 2))
    notes = [line for note in _notes(found) for line in wrapped(note, width=width)]
    return "\n".join([printable(_first_line(found)), "", *table, *([""] if notes else []), *notes, ""])


def fit_json(found: ModelFit) -> dict[str, Any]:
    """Return the JSON object that `schemas/fit.json` describes."""
    request = found.variants[0].estimate.request
    return {
        "schema_version": SCHEMA_VERSION,
        "model": found.model,
        "request": {
            "mode": request.mode,
            "precision": request.precision,
            "context": request.context if found.reads_text else None,
            "batch": request.batch,
        },
        "devices": [
            {
                "device": one.room.name,
                "memory": one.room.available,
                "used_now": one.room.used,
                "needed": one.needed,
                "fits": bool(one.fits),
            }
            for one in found.fits
        ],
        "variants": [
            {
                "differences": list(one.differences),
                **(parts := one.parts(on_host=found.on_host)),
                "total": sum(parts.values()),
                "fits": [one.fits(answer.room) for answer in found.fits],
            }
            for one in found.variants
        ],
        "notes": _notes(found),
    }


def _first_line(found: ModelFit) -> str:
    request = found.variants[0].estimate.request
    how = [found.model, request.precision, *([f"{request.context:,} tokens"] if found.reads_text else [])]
    how += [f"batch {request.batch}", *(["training with AdamW"] if request.mode == "training" else [])]
    total = sum(found.variants[0].parts(on_host=found.on_host).values())
    return f"{', '.join(how)}: {size_text(total)}; {'; '.join(map(_answer, found.fits))}"


def _answer(one: Fit) -> str:
    if not one.fits:
        return f"doesn't fit {_device(one.room)} ({size_text(one.missing)} missing)"
    left = size_text((one.room.available or 0) - one.needed)
    return f"fits {_device(one.room)}{', with little to spare' if one.is_tight else ''} ({left} left)"


def _device(room: AvailableMemory) -> str:
    """Return `a 24 GiB device` for a size, `cpu with 24 GiB` for a target: its name has no space."""
    if " " not in room.name:
        return f"{room.name} with {size_text(room.available)}"
    article = "an" if room.name.startswith("8") or re.match(r"1[18]\D", room.name) else "a"
    return f"{article} {room.name} device"


def _fits(found: ModelFit, variant: MemoryVariant) -> str:
    names = [one.room.name for one in found.fits if variant.fits(one.room)]
    if names and len(names) < len(found.fits):
        return f"only {', '.join(names)}"
    return "yes" if names else "no"


def _notes(found: ModelFit) -> list[str]:
    """Return what the numbers assume, and what helps a device that no variant fits."""
    notes = [f"Note: {one}." for one in found.notes]
    base = found.variants[0]
    if base.estimate.request.mode == "training" and not base.parts(on_host=found.on_host)["gradients"]:
        notes.append(_LATER)
    if any("int4" in one.differences for one in found.variants):
        notes.append(_QUANTIZED)
    for one in found.fits:
        if not any(variant.fits(one.room) for variant in found.variants):
            change = one.change
            helps = (
                f"{change.what} ({size_text(change.needed)})" if change else "use a smaller model or a larger device"
            )
            notes.append(f"No variant fits {_device(one.room)}: {helps}.")
    notes += [
        f"Programs hold {size_text(one.room.used)} of {one.room.name} now: {size_text(one.missing_now)} are missing "
        "until they end."
        for one in found.fits
        if one.missing_now
    ]
    return notes if found.on_host else [*notes, *_beside(found)]


def _beside(found: ModelFit) -> list[str]:
    """Return what a device holds beside the model, as far as it was measured, and how far estimates are off there."""
    counted = [one.room for one in found.fits if one.room.beside]
    notes = [f"Left out of the memory of {room.name}: {room.beside.text}." for room in counted if room.beside]
    others = any(not one.room.is_host and not one.room.beside for one in found.fits)
    known = next((room.beside for room in counted), None) or beside_model("cuda")
    missing = f"the device's driver and runtime ({known.text}); " if others and known else ""
    notes.append(f"Not counted: {missing}{_NEVER_COUNTED}.")
    mode = found.variants[0].estimate.request.mode
    if mode == "generation":
        notes += [one["note"] for one in data_file(_ENGINES).values()]
    if known and counted:
        low, high = known.reserved
        notes.append(
            f"torch's allocator reserves {low:.2f} to {high:.2f} times the peak in blocks, and releases unused ones."
        )
    if known and mode == "training":
        low, high = known.over_estimate[mode]
        notes.append(
            f"Measured peaks of training on an {known.device} were {low:.2f} to {high:.2f} times the estimate."
        )
    return notes
