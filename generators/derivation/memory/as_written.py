"""What a configuration says of its numbers that an estimate has to know: sizes that can't be, a precision that isn't
counted, and weights that are kept in fewer bits; and whether the weights beside it are of that model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from generators.compatibility.memory.estimate import PRECISIONS
from generators.derivation.scopes import role_of, tree
from hardware.errors import ModelError
from hardware.untrusted import is_plain_file

_SIZES = ("hidden", "width", "heads", "head_dim", "layers", "vocabulary")
_NEVER_ZERO = ("hidden", "heads")
_BITS = {"fp8": 8, "fbgemm_fp8": 8, "finegrained_fp8": 8, "mxfp4": 4, "bitnet": 2}
"""Ways to quantise that have one width; others say theirs. Source: transformers 5.5, utils/quantization_config.py."""
_APART = 0.02
"""How far the numbers in weight files may be from those of the model, as a share: buffers are kept, ties are not."""
_NAMED_BITS = re.compile(r"(?:int|fp|float)(2|3|4|6|8)")


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """How a checkpoint's linear layers are kept: the method's name, bits of a weight or None where nothing tells."""

    method: str
    bits: int | None


def refuse_impossible(config: Any) -> None:
    """Raise `ModelError` for sizes that no model has: below zero, or zero where something is divided by them."""
    for scope in tree(config):
        for role in _SIZES:
            for name, value in role_of(scope, role).items():
                for one in value if isinstance(value, list | tuple) else [value]:
                    if type(one) is int and (one < 0 or (one == 0 and role in _NEVER_ZERO)):
                        raise ModelError(
                            "the configuration describes no model",
                            why=f"its {name} is {one}",
                            fix="Put right what config.json says.",
                        )


def declared_precision(config: Any) -> tuple[str, str]:
    """The precision that a configuration names, or float32 and in words why that is taken instead."""
    declared = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    if declared in PRECISIONS:
        return declared, ""
    return "float32", f"its configuration names {declared}, which isn't counted here: figures are for float32"


def quantised(config: Any) -> Quantised | None:
    """How the weights are kept, where the configuration says that they are quantised."""
    said = getattr(config, "quantization_config", None)
    if said is None:
        return None
    said = said if isinstance(said, Mapping) else said.to_dict()
    method = str(said.get("quant_method") or "an unnamed way")
    return Quantised(method=method, bits=_bits(method, said))


def _bits(method: str, said: Mapping[str, Any]) -> int | None:
    for name in ("bits", "nbits", "w_bit", "weight_bits"):
        if isinstance(said.get(name), int):
            return int(said[name])
    if said.get("load_in_4bit") or said.get("_load_in_4bit"):
        return 4
    if said.get("load_in_8bit") or said.get("_load_in_8bit"):
        return 8
    named = _NAMED_BITS.search(str(said.get("weights") or said.get("quant_type") or ""))
    return int(named[1]) if named else _BITS.get(method)


def weights_of_another(folder: Path, parameters: int) -> str:
    """In words, that the weights in a folder are not so many as its configuration makes; empty where they are, and
    where there are none that can be read."""
    from safetensors import SafetensorError, safe_open

    count = 0
    for file in sorted(folder.glob("*.safetensors")):
        if not is_plain_file(file):
            return f"{file.name} is not a regular file: figures come from config.json alone"
        try:
            with safe_open(str(file), "numpy") as opened:  # type: ignore[no-untyped-call]
                count += sum(prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            return f"{file.name} can't be read ({error}): figures come from config.json alone"
    if not count or abs(count - parameters) <= _APART * parameters:
        return ""
    return (
        f"its weight files hold {count:,} numbers, and its configuration makes a model of {parameters:,}: "
        "figures come from the configuration"
    )
