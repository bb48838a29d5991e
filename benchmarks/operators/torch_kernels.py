"""Operators with torch kernels for a device, from `native_functions.yaml` in torch's wheel."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from generators.compatibility.operators import Section

SOURCE = "torchgen/packaged/ATen/native/native_functions.yaml in torch's wheel"
CPU_ONLY: Mapping[str, str] = {
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "mkldnn_rnn_layer": "lstm",
}
"""CPU-only operators in recipes, which were recorded on a CPU, and their equivalent on other devices."""

_KEYS: Mapping[str, str] = {
    "cpu": "CPU",
    "simulated": "CPU",
    "cuda": "CUDA",
    "rocm": "CUDA",
    "mps": "MPS",
    "xpu": "XPU",
}
_NOTES: Mapping[str, str] = {
    "rocm": "; torch for ROCm builds its CUDA kernels with HIP, under the same dispatch key",
    "simulated": "; the simulated device computes with the CPU's kernels",
}
_MADE_OF_OTHERS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@dataclass(frozen=True, kw_only=True)
class Native:
    """An entry: an overload of an operator and the dispatch keys of its kernels."""

    name: str
    overload: str
    keys: frozenset[str]

    @property
    def is_composite(self) -> bool:
        """Whether it calls other operators on devices without a kernel."""
        return bool(self.keys & set(_MADE_OF_OTHERS)) or not self.keys

    @property
    def writes_out(self) -> bool:
        """Whether this is a variant with `out=`, which no model calls."""
        return self.overload.endswith("out") or self.overload in _OUT_NAMES


_OUT_NAMES = ("grad_input", "values", "indices", "dim_values", "unary_out", "output")


def natives(file: Path) -> list[Native]:
    """Return the entries of a `native_functions.yaml`, with structured kernels resolved."""
    import yaml

    entries = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    by_name = {entry["func"].partition("(")[0]: entry for entry in entries}
    return [_native(name, entry, by_name) for name, entry in by_name.items()]


def _native(name: str, entry: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> Native:
    keys = set(_keys(entry))
    if delegate := entry.get("structured_delegate"):
        keys |= set(_keys(by_name[delegate]))
    base, _, overload = name.partition(".")
    if entry.get("dispatch") == {}:  # no dispatch key: entries without any are composite
        keys.add("Undefined")
    return Native(name=base, overload=overload, keys=frozenset(keys))


def _keys(entry: Mapping[str, Any]) -> Iterator[str]:
    for names in entry.get("dispatch", {}):
        yield from names.split(", ")
    if entry.get("ufunc_inner_loop"):  # torchgen generates these kernels for CPU and CUDA.
        yield from ("CPU", "CUDA")


def packaged() -> Path:
    """Return the file in the installed torch."""
    spec = importlib.util.find_spec("torchgen")
    assert spec is not None
    assert spec.submodule_search_locations
    return (
        Path(next(iter(spec.submodule_search_locations))) / "packaged" / "ATen" / "native" / "native_functions.yaml"
    )


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Operators that run under a dispatch key, composite ones among them, conditions, and missing operators."""

    supported: list[str]
    made_of_others: list[str]
    conditions: dict[str, str]
    missing: dict[str, str]


def kernels(entries: Sequence[Native], key: str, also: frozenset[str] = frozenset()) -> Kernels:
    """Return the operators of a dispatch key.

    `also` are overloads (`add.Tensor`) with kernels of another library. An operator runs if each overload has a
    kernel
    or is composite; if only some do, that is its condition.
    """
    overloads: dict[str, list[Native]] = defaultdict(list)
    for entry in entries:
        if not entry.writes_out:
            overloads[entry.name].append(entry)
    found = Kernels(supported=[], made_of_others=[], conditions={}, missing={})
    for name, forms in sorted(overloads.items()):
        own = [one for one in forms if key in one.keys or _full(one) in also]
        lacking = [one.overload or "default" for one in forms if one not in own and not one.is_composite]
        if len(lacking) == len(forms):
            found.missing[f"aten.{name}"] = f"no kernel for {key}, and not made of other operators"
            continue
        found.supported.append(f"aten.{name}")
        if lacking:
            found.conditions[f"aten.{name}"] = f"not its overloads {', '.join(sorted(lacking))}"
        if not own:
            found.made_of_others.append(f"aten.{name}")
    return found


def _full(one: Native) -> str:
    return f"{one.name}.{one.overload}" if one.overload else one.name


def section(target: str, made_on: str, also: frozenset[str] = frozenset(), source: str = "") -> Section:
    """Return the declared section of a torch device; `also` and `source` describe kernels of another library."""
    found = kernels(natives(packaged()), _KEYS[target], also)
    if target not in ("cpu", "simulated"):
        for name, form in CPU_ONLY.items():
            found.missing.pop(f"aten.{name}", None)
            found.supported.append(f"aten.{name}")
            found.made_of_others.append(f"aten.{name}")
            found.conditions[f"aten.{name}"] = f"a CPU's form of aten.{form}, which is made of other operators"
    return Section(
        kind="declared",
        names="aten",
        source=f"dispatch key {_KEYS[target]} in {SOURCE}{_NOTES.get(target, '')}{source}",
        made_by="python -m benchmarks.operators torch",
        made_on=made_on,
        versions={"torch": version("torch").partition("+")[0]},
        supported=tuple(sorted(found.supported)),
        made_of_others=tuple(sorted(found.made_of_others)),
        conditions=found.conditions,
        missing=found.missing,
    )
