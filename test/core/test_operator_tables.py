"""Tables and rules of operators agree with the installed torch."""

from __future__ import annotations

import re

import torch

from generators.compatibility.explanation import explain
from generators.compatibility.operators import table_of
from generators.compatibility.rule_facts import Facts
from generators.compatibility.rules import load_rules
from hardware.target import Target


def test_the_table_of_the_cpu_agrees_with_torchs_dispatcher() -> None:
    table = table_of("cpu").sections[0]
    asked = {name: found for name in (*table.supported, *table.missing) if (found := _has_kernel(name)) is not None}
    assert len(asked) > 1500
    assert [name for name, has in asked.items() if has != (name in table.known)] == []


def _has_kernel(name: str) -> bool | None:
    """Whether any form of an operator without `out=` has a kernel on the CPU or is made of others; None: no such."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten."), None)
    if packet is None:
        return None
    overloads = [form for form in packet.overloads() if not form.endswith("out")]
    return any(_registered(f"aten::{packet.__name__}.{form}".removesuffix(".default")) for form in overloads)


def _registered(form: str) -> bool:
    keys = ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    try:
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(form, key) for key in keys)
    except RuntimeError:  # TorchScript's own forms, of numbers, aren't the dispatcher's
        return False


def test_a_rule_limits_every_fourier_transform_on_openvino():
    transforms = [name for name in dir(torch.fft) if re.fullmatch(r"i?[rh]?fft[2n]?|ir?fft[2n]?", name)]
    assert len(transforms) == 18
    for name in transforms:
        facts = Facts(precision="float32", trace_operators=("aten::matmul", f"aten::fft_{name}"), traced="any_length")
        found = explain(Target(name="openvino"), facts, load_rules())
        assert "openvino.fourier" in {link.rule.id for link in found.links}, name
