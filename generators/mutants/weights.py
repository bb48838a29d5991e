"""Breaks of weights, at the attention sites and convolutions that a model's outputs depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from generators.derivation.rows import Rows, halves, swap_rows
from generators.derivation.sites import Site, scale_attention

if TYPE_CHECKING:
    import random

    import torch

    from .anatomy import Anatomy

FACTOR = 1.1


def draw(anatomy: Anatomy, random: random.Random, usable: Callable[[Site], bool], need: str) -> Site:
    """One of the attention sites that are `usable`. Raises `ValueError` where none is."""
    sites = [site for site in anatomy.sites or anatomy.matrices if usable(site)]
    if not sites:
        raise ValueError(f"{anatomy.class_name} has no {need}")
    return random.choice(sites)


def scale_attention_scores(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    """Multiply the scores of one attention by 1.1, in its query; in a state space the rows that give C."""
    site = draw(anatomy, random, lambda _: True, "attention")
    scale_attention(model, site, FACTOR)
    return describe_rows(site.query_norm or site.query)


def swap_query_and_key(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    """Exchange query and key of one attention; of a larger query (grouped heads) the first rows only.

    Where their shapes differ (latent attention) key and value are exchanged, else the halves of the query; without
    any attention the halves of a matrix.
    """
    site = draw(anatomy, random, lambda s: s.key is not None or s.kind == "weight", "query and key")
    if site.key is None:
        first, last = halves(site.query)
        swap_rows(model, first, last)
        return f"{describe_rows(first)} with {describe_rows(last)}"
    query, key = site.query, site.key
    if query.size > key.size and len(query.ranges) == 1:
        start = query.ranges[0][0]
        query = replace(query, ranges=((start, start + key.size),))
    for one, other in ((query, key), (key, site.value), halves(query)):
        if other is not None and one.size == other.size and _width(model, one) == _width(model, other):
            swap_rows(model, one, other)
            return f"{describe_rows(one)} with {describe_rows(other)}"
    raise ValueError(f"{site.module} has no two projections of one shape")


def _width(model: torch.nn.Module, rows: Rows) -> int:
    """How many features a projection reads."""
    return int(model.get_parameter(rows.weight).shape[1 - rows.axis])


def describe_rows(rows: Rows) -> str:
    """The rows as text: `layer.0.query.weight[0:48]`."""
    return f"{rows.weight}[{','.join(f'{start}:{stop}' for start, stop in rows.ranges)}]"


def transpose_heads(model: torch.nn.Module, random: random.Random, anatomy: Anatomy) -> str:
    """Exchange heads and head features in what one output projection reads.

    A state space has no heads: its channels are taken as groups of as many as it has states. Where there is no
    attention, what one convolution reads is taken as two groups of channels, or else what any matrix reads.
    """
    import torch

    projections = [(site.output, heads) for site in anatomy.sites if site.output and (heads := _heads(model, site))]
    grouped = projections or _in_groups(model, anatomy.convolutions) or _in_groups(model, anatomy.matrices)
    if not grouped:
        raise ValueError(f"{anatomy.class_name} has nothing that reads several features")
    rows, heads = random.choice(grouped)
    weight = model.get_parameter(rows.weight)
    features = 1 - rows.axis
    size = weight.shape[features]
    order = torch.arange(size).reshape(heads, size // heads).T.reshape(-1)
    with torch.no_grad():
        weight.copy_(weight.index_select(features, order.to(weight.device)))
    return f"{rows.weight}, {heads} {'heads' if projections else 'groups'} of {size // heads}"


def _heads(model: torch.nn.Module, site: Site) -> int:
    """How many heads an output projection reads; 0 where they aren't several of several features each."""
    assert site.output is not None
    size = _width(model, site.output)
    heads = site.heads or size // site.query.size
    return heads if heads > 1 and size % heads == 0 and size > heads else 0


def _in_groups(model: torch.nn.Module, sites: Sequence[Site]) -> list[tuple[Rows, int]]:
    """Those whose inputs are two groups of several features, and how many groups that is."""
    sizes = [(site.query, _width(model, site.query)) for site in sites]
    return [(rows, 2) for rows, size in sizes if size > 2 and size % 2 == 0]
