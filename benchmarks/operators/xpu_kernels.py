"""Operators with kernels for Intel GPUs, in torch and in torch-xpu-ops."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from generators.compatibility.operators import Section

from .torch_kernels import natives, section

REPOSITORY = "https://github.com/intel/torch-xpu-ops"


def xpu_section(checkout: Path, revision: str, made_on: str) -> Section:
    """Return the section from `yaml/` and the fallbacks of a checkout of torch-xpu-ops at `revision` (`release/2.13
    at 21172da`)."""
    import yaml

    listed = yaml.safe_load((checkout / "yaml" / "xpu_functions.yaml").read_text(encoding="utf-8"))["supported"]
    own = natives(checkout / "yaml" / "native" / "native_functions.yaml")
    registered = {f"{one.name}.{one.overload}".removesuffix(".") for one in own if "XPU" in one.keys}
    sources = f", and yaml/ of {REPOSITORY}, {revision}"
    found = section("xpu", made_on, frozenset({*listed, *registered}), sources)
    template = (checkout / "src" / "ATen" / "native" / "xpu" / "XPUFallback.template").read_text(encoding="utf-8")
    on_host = {f"aten.{name.partition('.')[0]}" for name in _fallback_names(template)}
    return replace(
        found,
        made_by="python -m benchmarks.operators xpu CHECKOUT",
        supported=tuple(name for name in found.supported if name not in on_host),
        made_of_others=tuple(name for name in found.made_of_others if name not in on_host),
        conditions={name: why for name, why in found.conditions.items() if name not in on_host},
        on_host=tuple(sorted(on_host)),
        missing={**found.missing, **dict.fromkeys(sorted(on_host), "computed on the host by torch-xpu-ops")},
    )


def _fallback_names(template: str) -> list[str]:
    """Return the operators that always fall back to the host."""
    body = template.partition("fallback_list = {")[2].partition("}")[0]
    return re.findall(r'"([\w.]+)"', body)
