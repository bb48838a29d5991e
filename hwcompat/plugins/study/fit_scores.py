"""Whether `fit` agrees with published results that tell that a model fitted into a device's memory, or didn't.

`published_memory.toml` says which rows tell it, of which sizes their models are, and how much memory devices have;
`published_memory.json` has the estimates, made by `python -m benchmarks.published_memory`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hwcompat.generators.compatibility.memory_fit import MemoryAnatomy, MemoryEstimate, on_devices
from hwcompat.generators.compatibility.prediction_scores import held_out, tally
from hwcompat.generators.compatibility.published_rows import SHIPPED, shipped_rows, source_of, type_of
from hwcompat.hardware.evidence.published import Row
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.values import data_file

_FILE = SHIPPED.with_name("published_memory.toml")
_ESTIMATES = SHIPPED.with_name("published_memory.json")
_PRECISION = "bfloat16"


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A model in one way to run it: the name of its sizes, or of its type."""

    sizes: str
    mode: str
    precision: str
    batch: int
    length: int

    @property
    def key(self) -> str:
        """The name of its estimate."""
        return " ".join(map(str, (self.sizes, self.mode, self.precision, self.batch, self.length)))


@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """A published result that tells whether a model fitted.

    `sized` is how its memory is estimated, None if only the bytes of its weights are known (`weights`). `devices` is
    how many devices the source uses, of `memory` bytes each, of which a program gets `share`; `optimizer` tells
    whether a training step updates weights.
    """

    row: Row
    model_type: str
    sized: Sized | None
    weights: int
    devices: int
    memory: int
    share: float
    optimizer: bool
    fitted: bool

    @property
    def source(self) -> str:
        """The name of the source."""
        return source_of(self.row.source)["name"]

    @property
    def needed(self) -> int | None:
        """Bytes that one device needs, None without an estimate."""
        if self.sized is None:
            return self.weights // self.devices
        found = _estimates().get(self.sized.key, {})
        if "estimate" not in found:
            return None
        estimate = MemoryEstimate.from_dict(found["estimate"])
        needed = on_devices(estimate, MemoryAnatomy(**found["anatomy"]), self.devices)
        return needed - (0 if self.optimizer else estimate.optimiser // self.devices)

    @property
    def fits(self) -> bool | None:
        """What `fit` says, None without an estimate."""
        return None if self.needed is None else self.needed <= self.share * self.memory


@functools.cache
def _estimates() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_ESTIMATES.read_text(encoding="utf-8")) if _ESTIMATES.is_file() else {}
    return found


def rows_about_memory() -> Iterator[MemoryRow]:
    """Yield the shipped results that tell whether a model of known sizes fitted."""
    data = data_file(_FILE)
    failed = {(row.model, _place(row)) for row in shipped_rows() if _too_large(row, data)}
    for row in shipped_rows():
        model = next((one for one in data["model"] if any(fnmatchcase(row.model, of) for of in one["of"])), None)
        route = next((one for one in data["route"] if fnmatchcase(row.route, one["of"])), None)
        fitted = row.outcome in data["fitted"]
        if model is None or route is None or _place(row) not in data["device"] or row.mode in data["not_modes"]:
            continue
        if not fitted and (not _too_large(row, data) or _is_copy(row, failed, data)):
            continue
        if route.get("precision", row.precision) != row.precision or route.get("file", "") not in row.source:
            continue
        yield _memory_row(row, model, route, fitted, data)


def _place(row: Row) -> str:
    """Return the target with its device: `tpu:v6e`."""
    return f"{row.target}:{row.device}"


def _too_large(row: Row, data: Mapping[str, Any]) -> bool:
    about = re.search(data["too_large"], row.detail) and not re.search(data["not_too_large"], row.detail)
    return bool(about) and row.outcome not in data["fitted"]


def _is_copy(row: Row, failed: set[tuple[str, str]], data: Mapping[str, Any]) -> bool:
    """Whether a failure is listed for both cards of a source, and is of the other one."""
    copies = data["copies"]
    if not {(row.model, copies["smaller"]), (row.model, copies["larger"])} <= failed:
        return False
    return (_place(row) == copies["smaller"]) is bool(re.search(copies["of_larger"], row.detail))


def _memory_row(
    row: Row, model: Mapping[str, Any], route: Mapping[str, Any], fitted: bool, data: Mapping[str, Any]
) -> MemoryRow:
    named = type_of(row)
    asked = re.search(data["asked"], row.model)
    mode = "training" if row.mode.startswith("training") else route.get("mode", "inference")
    length = int(asked[1]) if asked else route.get("length", data["length"])
    sized = Sized(
        sizes=model.get("sizes") or model.get("type", ""),
        mode=mode,
        precision=route.get("computes", _PRECISION),
        batch=int(asked[2]) if asked else 1,
        length=length,
    )
    return MemoryRow(
        row=row,
        model_type=named.model_type if named else "",
        sized=sized if sized.sizes else None,
        weights=model.get("weights", 0),
        devices=model.get("devices", 1),
        memory=data["device"][_place(row)]["bytes"],
        share=route.get("share", 1.0),
        optimizer=route.get("optimizer", True),
        fitted=fitted,
    )


_HEAD = (
    *("", "types", "rows", "fitted as predicted", "too large as predicted", "too large, predicted to fit"),
    *("fitted, predicted to be too large", "agreement", "balanced", "always fits"),
)
MEMORY_RULE = (
    "Rows count if they tell that a checkpoint of known sizes fitted into a device's memory, or didn't. Nothing "
    "was tuned on them: that tt-xla's JAX models compute in float32, and that its training steps end with "
    "gradients, follows from its scripts. Of a failure that a source lists for two cards with the same words, one "
    "counts. Rows without a length are estimated with 128 tokens, and a model on several devices is split by "
    "layers. tpu-inference's scripts say that HBM isn't enough without a run, also for models whose weights need "
    "a quarter of it; Tenstorrent's compiler asks for single buffers that are larger than whole models. AI Hub's "
    "ranges of memory aren't among these rows: for one model and precision they end between 1 and 330 MB by "
    "device (Albert), because they are a process's, and weights that an NPU holds aren't in them. Nor are Gaudi's "
    "rows without a precision, whose number of cards isn't known, and RT-DETR's, which can't be estimated."
)


def memory_json(rows: Iterable[MemoryRow]) -> list[dict[str, str]]:
    """Return the scores by source and for held-out types."""
    _, (head, *scored), _ = memory_tables(rows)
    return [dict(zip(("of", *head[1:]), row, strict=True)) for row in scored]


def memory_tables(rows: Iterable[MemoryRow]) -> tuple[str, tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Return the figure as a sentence, the scores by source and for types that are held out, and the rows on which
    `fit` and the source disagree, by model and device, each with its head."""
    every = [row for row in rows if row.fits is not None]
    named: dict[str, list[MemoryRow]] = {}
    for row in every:
        named.setdefault(row.source, []).append(row)
    apart = [row for row in every if row.model_type in held_out()]
    named |= {"all": every, "types that aren't held out": [row for row in every if row not in apart]}
    named["types that are held out"] = apart
    counts = tally((row.fits, row.fitted) for row in every)
    right = counts.true_supported + counts.true_unsupported
    said = f"`fit` agrees with {right} of {len(every)} rows about memory ({_percent(right / max(len(every), 1))})."
    wrong: dict[tuple[str, ...], int] = {}
    for row in every:
        if row.fits is not row.fitted:
            gib = [f"{size / 2**30:.1f}" for size in (row.needed or 0, row.share * row.memory)]
            what = "fitted" if row.fitted else one_line(row.row.detail, longest=60)
            key = (
                row.row.model,
                f"{row.devices} × {_place(row.row)}",
                row.sized.mode if row.sized else "",
                *gib,
                what,
            )
            wrong[key] = wrong.get(key, 0) + 1
    head = ("model", "devices", "mode", "needed, GiB each", "available, GiB", "what happened", "rows")
    table = tuple((*key, str(count)) for key, count in wrong.items())
    return said, (_HEAD, *(_scored(name, own) for name, own in named.items())), (head, *table)


def _scored(name: str, rows: Sequence[MemoryRow]) -> tuple[str, ...]:
    counts = tally((row.fits, row.fitted) for row in rows)
    numbers = (
        *(len({row.model_type for row in rows}), len(rows), counts.true_supported, counts.true_unsupported),
        *(counts.false_supported, counts.false_unsupported),
    )
    always = tally((True, row.fitted) for row in rows).agreement
    return (name, *map(str, numbers), *map(_percent, (counts.agreement, counts.balanced_accuracy, always)))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
