"""Breaks of positions: whatever tells a model where a token, a frame or a patch stands is off by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from generators.derivation.scopes import roles
from generators.derivation.sites import Site

from .weights import describe_rows

if TYPE_CHECKING:
    import random

    import torch

    from .anatomy import Anatomy

_LINEAR_BIAS = "alibi"


def shift_positions(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    """Shift by one what tells the places apart, the first of these that the model has.

    A learned table of positions, by a row; a rotary query, turned by one position; computed or convolved positions,
    by a place; linear biases, by a place; the kernel of a convolution.
    """
    for way in (_roll_table, _turn_query, _roll_module, _roll_bias, _roll_kernel):
        site = way(model, random, anatomy)
        if site:
            return site
    raise ValueError(f"{anatomy.class_name} has no positions of any kind")


def _roll_table(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    return _roll(model, random.choice(anatomy.position_tables), "rows", -2) if anatomy.position_tables else ""


def _roll(model: torch.nn.Module, name: str, what: str, axis: int) -> str:
    import torch

    parameter = model.get_parameter(name)
    with torch.no_grad():
        parameter.copy_(parameter.roll(1, dims=axis))
    return f"{name}, {what} rolled by one"


def _turn_query(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    found = list(_rotary(model, anatomy.sites))
    if not found:
        return ""
    site, frequencies, starts, step = random.choice(found)
    for name in filter(None, (site.query.weight, site.query.bias)):
        for start in starts:
            _turn(model.get_parameter(name), start, frequencies, step)
    return f"{describe_rows(site.query)}, turned by one position"


def _rotary(model: torch.nn.Module, sites: tuple[Site, ...]) -> Iterator[tuple[Site, torch.Tensor, list[int], int]]:
    """Queries that are rotated, with the frequencies, the first rotated row of each head, and 2 where neighbours are
    paired, 1 where feature i is paired with i + half."""
    buffers = [(name, b) for name, b in model.named_buffers() if name.endswith("inv_freq")]
    for site in (site for site in sites if site.heads and site.query.axis == 0):
        module = model.get_submodule(site.module)
        width = site.query.size // site.heads
        rotated = getattr(module, "qk_rope_head_dim", None) or int(width * _rotated_share(module))
        rotated += rotated % 2  # features are rotated in pairs
        # The parts of a model that are rotated may each have frequencies of their own.
        near = [b for name, b in buffers if site.module.startswith(name.rpartition(".")[0].rpartition(".")[0])]
        frequencies = next((b for b in near if 2 * b.numel() == rotated), None)
        if frequencies is None:
            continue
        first = width - rotated if hasattr(module, "qk_rope_head_dim") else 0  # latent attention rotates the last
        step = 2 if getattr(getattr(module, "config", None), "rope_interleave", False) else 1
        rows = [row for start, stop in site.query.ranges for row in range(start, stop)]
        yield site, frequencies, [rows[head * width + first] for head in range(site.heads)], step


def _rotated_share(module: torch.nn.Module) -> float:
    """Which share of a head's features is rotated, from the first on."""
    config = getattr(module, "config", None)
    said = getattr(config, "rope_parameters", None) or {}
    return float(said.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0)


def _turn(parameter: torch.Tensor, start: int, frequencies: torch.Tensor, step: int) -> None:
    """Rotate a head's rows by one position."""
    import torch

    half = frequencies.numel()
    shape = (half, *[1] * (parameter.ndim - 1))
    cos, sin = (f(frequencies.to(parameter)).reshape(shape) for f in (torch.cos, torch.sin))
    with torch.no_grad():
        rows = parameter.narrow(0, start, 2 * half)
        low, high = (rows[0::2], rows[1::2]) if step == 2 else (rows[:half], rows[half:])
        low_turned, high_turned = low * cos - high * sin, high * cos + low * sin
        low.copy_(low_turned)
        high.copy_(high_turned)


def _roll_module(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    """What a module computes from places alone or by convolving neighbours: (batch, places, features)."""
    known = roles()["parameters"]["position_modules"]
    named = [(name, module) for name, module in model.named_modules() if name.rpartition(".")[2] in known]
    if not named:
        return ""
    name, module = random.choice(named)
    module.register_forward_hook(lambda _module, _args, output: output.roll(1, dims=1))
    return f"{name}, places rolled by one"


def _roll_bias(model: torch.nn.Module, _random: random.Random, anatomy: Anatomy) -> str:
    import inspect

    takers = [
        site.module
        for site in anatomy.sites
        if _LINEAR_BIAS in inspect.signature(model.get_submodule(site.module).forward).parameters
    ]

    def roll(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        bias = kwargs.get(_LINEAR_BIAS)
        return args, kwargs if bias is None else kwargs | {_LINEAR_BIAS: bias.roll(1, dims=-1)}

    for name in takers:
        model.get_submodule(name).register_forward_pre_hook(roll, with_kwargs=True)
    return f"linear biases of {takers[0]} and {len(takers) - 1} more, rolled by one" if takers else ""


def _roll_kernel(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = [f"{site.module}.conv1d.weight" for site in anatomy.sites if f"{site.module}.conv1d.weight" in parameters]
    kernels = own or [
        site.query.weight for site in anatomy.convolutions if parameters[site.query.weight].shape[-1] > 1
    ]
    return _roll(model, random.choice(kernels), "kernel", -1) if kernels else ""
