"""Facts about a type's modeling code that hold on every target: data beside the recipes, made by the maintainers.

Examples: outputs that depend on padding, decoding with a cache that gives other numbers, loops that can't be traced,
work that stays on the host. Reading the facts imports nothing that builds models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .recipe_store import Records

ANY_LENGTH = "any_length"
OWN_SIZES = "own_sizes"
NOT_TRACED = "no"

_SAME = 1e-6
"""Both sides are float64; the order of sums changes far less."""


@dataclass(frozen=True, kw_only=True)
class CodeFacts:
    """Facts of one type and task, for the recipe with the digest `recipe`.

    `padding_error` is the largest change of unmasked outputs when padded tokens change, relative to the outputs'
    scale; `None` without padding. `cache_error` is the difference between decoding with and without a cache in
    float64, 1 if other tokens are chosen; `None` if the model doesn't decode, or if it fails with `cache_fails`.
    `traced` says for which inputs a torch trace holds: `any_length`, `own_sizes` (only the shapes of its example) or
    `no`, with the reason in `trace_fails`. `step_fails` says why the decoding step can't be traced. `trace_operators`
    are the operators of the last successful trace, and `largest_rank` the largest number of axes of its tensors.
    `host_functions` are the torch functions that work on host tensors although weights and inputs are on a device.
    `onnx_operators` are those of the verified ONNX export; `onnx_fails` says why there is none.
    """

    model_type: str
    task: str
    recipe: str = ""
    padding_error: float | None = None
    cache_error: float | None = None
    cache_fails: str = ""
    traced: str = ""
    trace_fails: str = ""
    step_fails: str = ""
    trace_operators: tuple[str, ...] = ()
    largest_rank: int = 0
    host_functions: tuple[str, ...] = ()
    onnx_operators: tuple[str, ...] = ()
    onnx_fails: str = ""

    @property
    def onnx(self) -> str:
        """Whether there is an ONNX export that gives torch's numbers on the host: `yes` or `no`; empty if not
        tried."""
        return "no" if self.onnx_fails else "yes" if self.onnx_operators else ""

    @property
    def cache(self) -> str:
        """`right` if decoding with a cache equals decoding without one, else `wrong` or `fails`; empty if not
        tried."""
        if self.cache_error is None:
            return "fails" if self.cache_fails else ""
        return "right" if self.cache_error < _SAME else "wrong"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CodeFacts:
        """Return the facts that `to_dict` wrote. Raises `TypeError` for other fields."""
        listed = ("trace_operators", "host_functions", "onnx_operators")
        return cls(**{**data, **{name: tuple(data.get(name, ())) for name in listed}})


_CODE_FACTS = Records("code", "facts of types' code", CodeFacts.from_dict, indent=0)


def code_facts(model_type: str, task: str) -> CodeFacts | None:
    """Return the facts of a type and task for the library version in use, or None if there are none. Raises
    `BrokenInput` for a file that can't be read."""
    return next(_CODE_FACTS.of(model_type, task), None)


def keep_code_facts(found: CodeFacts, folder: Path | None = None) -> None:
    """Store facts in `folder` (by default this machine's own). Raises `OutputError`."""
    _CODE_FACTS.keep(found.model_type, found.task, found, folder)
