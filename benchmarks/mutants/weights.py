"""Breaks of weights, at the attention sites and position tables of `generators.models.sites`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from generators.models.sites import Rows, Site, attention_sites, position_tables, scale_attention, swap_rows

if TYPE_CHECKING:
    import random

    import torch

FACTOR = 1.1


def _draw(model: torch.nn.Module, random: random.Random, usable: Callable[[Site], bool], need: str) -> Site:
    sites = [site for site in attention_sites(model) if site.kind != "weight" and usable(site)]
    if not sites:
        raise ValueError(f"{type(model).__name__} has no {need}")
    return random.choice(sites)


def scale_attention_scores(model: torch.nn.Module, random: random.Random, _inputs: Mapping[str, Any]) -> str:
    """Multiply the scores of one attention by 1.1, in its query; in a state space the rows that give C."""
    site = _draw(model, random, lambda _: True, "attention")
    scale_attention(model, site, FACTOR)
    return _rows(site.query_norm or site.query)


def swap_query_and_key(model: torch.nn.Module, random: random.Random, _inputs: Mapping[str, Any]) -> str:
    """Exchange query and key of one attention; of a larger query (grouped heads) the first rows only."""
    site = _draw(model, random, lambda s: s.key is not None and s.key.size <= _first(s.query), "query and key")
    key, query = site.key, site.query
    assert key is not None
    if query.size != key.size:
        start = query.ranges[0][0]
        query = replace(query, ranges=((start, start + key.size),))
    swap_rows(model, query, key)
    return f"{_rows(query)} with {_rows(key)}"


def _first(rows: Rows) -> int:
    return rows.ranges[0][1] - rows.ranges[0][0] if len(rows.ranges) == 1 else rows.size


def _rows(rows: Rows) -> str:
    return f"{rows.weight}[{','.join(f'{start}:{stop}' for start, stop in rows.ranges)}]"


def transpose_heads(model: torch.nn.Module, random: random.Random, _inputs: Mapping[str, Any]) -> str:
    """Exchange heads and head features in what one output projection reads.

    A state space has no heads: its channels are taken as groups of as many as it has states.
    """
    import torch

    site = _draw(model, random, lambda s: s.output is not None, "output projection")
    assert site.output is not None
    weight = dict(model.named_parameters(remove_duplicate=False))[site.output.weight]
    features = 1 - site.output.axis
    size = weight.shape[features]
    heads = site.heads or size // site.query.size
    if heads < 2 or size % heads or size == heads:
        raise ValueError(f"{site.output.weight} reads {size} features, which are not several heads of several each")
    order = torch.arange(size).reshape(heads, size // heads).T.reshape(-1)
    with torch.no_grad():
        weight.copy_(weight.index_select(features, order.to(weight.device)))
    return f"{site.output.weight}, {heads} heads of {size // heads}"


def shift_positions(model: torch.nn.Module, random: random.Random, _inputs: Mapping[str, Any]) -> str:
    """Shift one table of positions by one; else turn one rotary query by one position; else shift a convolution."""
    import torch

    parameters = dict(model.named_parameters(remove_duplicate=False))
    tables = position_tables(model)
    if tables:
        name = random.choice(tables)
        with torch.no_grad():
            parameters[name].copy_(parameters[name].roll(1, dims=-2))
        return f"{name}, rows rolled by one"
    frequencies = next((b for n, b in model.named_buffers() if n.rpartition(".")[2] == "inv_freq"), None)
    if frequencies is not None:
        site = _draw(model, random, lambda s: s.query.axis == 0 and len(s.query.ranges) == 1, "rotary query")
        _turn(parameters, site.query, frequencies)
        return f"{_rows(site.query)}, turned by one position"
    site = _draw(model, random, lambda s: f"{s.module}.conv1d.weight" in parameters, "positions of any kind")
    name = f"{site.module}.conv1d.weight"
    with torch.no_grad():
        parameters[name].copy_(parameters[name].roll(1, dims=-1))
    return f"{name}, kernel rolled by one"


def _turn(parameters: Mapping[str, torch.Tensor], query: Rows, frequencies: torch.Tensor) -> None:
    """Rotate every head's rows by one position, pairing feature i with i + half as rotary embeddings do here."""
    import torch

    half = frequencies.numel()
    start, stop = query.ranges[0]
    for name in filter(None, (query.weight, query.bias)):
        rows = parameters[name].narrow(0, start, stop - start)
        with torch.no_grad():
            pairs = rows.clone().reshape(-1, 2, half, *rows.shape[1:])
            shape = (half, *[1] * (rows.ndim - 1))
            cos, sin = (f(frequencies.to(rows)).reshape(shape) for f in (torch.cos, torch.sin))
            low, high = pairs[:, 0], pairs[:, 1]
            turned = torch.stack((low * cos - high * sin, high * cos + low * sin), dim=1)
            rows.copy_(turned.reshape(rows.shape))
