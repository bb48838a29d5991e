"""What a type's own code does, whatever it runs on: data beside the recipes, made by the maintainers' command.

Padding that is heard, decoding whose cache gives other numbers, loops that no trace can follow, work that stays on
the host. Reading it imports nothing that builds models.
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
"""Both sides are float64: what the order of sums changes is far below."""


@dataclass(frozen=True, kw_only=True)
class CodeFacts:
    """One type doing one task, by its recipe with the digest `recipe`.

    `padding_error` is how far other tokens in padded places move outputs that mean something, relative to their
    scale; `None` where nothing is padded. `cache_error` is how far decoding with a cache is from decoding without one
    in float64, 1 where it chooses other tokens; `None` where it doesn't decode, or fails with `cache_fails`. `traced`
    says what a trace of torch's holds for: `any_length`, `own_sizes` (the shapes of its example alone) or `no`;
    `trace_fails` why not for more. `step_fails` says why what decodes a token can't be traced. `trace_operators` are
    the operators of the last trace that could be made, and `largest_rank` the number of axes of its tensor with the
    most. `host_functions` are the functions of torch that would work on the host's tensors though weights and inputs
    are on a device. `onnx_operators` are those of its verified ONNX export, and `onnx_fails` why there is none.
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
        """Whether there is an ONNX export that gives torch's numbers on the host: `yes`, `no`; empty where it wasn't
        asked."""
        return "no" if self.onnx_fails else "yes" if self.onnx_operators else ""

    @property
    def cache(self) -> str:
        """`right` where decoding with a cache gives what decoding without one does, else `wrong` or `fails`; empty
        where it wasn't asked."""
        if self.cache_error is None:
            return "fails" if self.cache_fails else ""
        return "right" if self.cache_error < _SAME else "wrong"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CodeFacts:
        """What `to_dict` wrote. Raises `TypeError` for other fields."""
        listed = ("trace_operators", "host_functions", "onnx_operators")
        return cls(**{**data, **{name: tuple(data.get(name, ())) for name in listed}})


_CODE_FACTS = Records("code", "facts of types' code", CodeFacts.from_dict, indent=0)


def code_facts(model_type: str, task: str) -> CodeFacts | None:
    """What is known of a type's code doing a task, in the installed version of its library; None where nobody asked
    it. Raises `BrokenInput` for a file that can't be read."""
    return next(_CODE_FACTS.of(model_type, task), None)


def keep_code_facts(found: CodeFacts, folder: Path | None = None) -> None:
    """Store in `folder` (by default this machine's own). Raises `OutputError`."""
    _CODE_FACTS.keep(found.model_type, found.task, found, folder)
