"""Rotary positions of three axes: which part of a head turns with time, which with rows, which with columns."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .scopes import arguments_of

_SECTIONS = "mrope_section"
_HOLDERS = ("rope_parameters", "rope_scaling")
"""Where the sections stand in transformers 5 and in 4."""


def rotary_sections(config: Any, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary parameters of a scope whose heads were made narrower; empty where it has no such sections.

    `changed` are its other changed arguments. The three sections together are the frequencies of one head, half of
    its rotated width. A default configuration leaves them out, and modelling code then takes those of full size.
    """
    holder = next((name for name in _HOLDERS if name in arguments_of(config)), None)
    if holder is None or not _has_sections(config):
        return {}
    known = dict(getattr(config, holder, None) or {})
    if any(isinstance(one, Mapping) for one in known.values()):  # by kind of layer, whose code knows the sections
        return {}
    width = _value("head_dim", config, changed)
    heads = _value("num_attention_heads", config, changed)
    if width is None and heads:
        width = _value("hidden_size", config, changed) // heads
    if not width:
        return {}
    part = known.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    frequencies = int(width * part) // 2
    time = frequencies // 4
    rows = (frequencies - time) // 2
    sections = [time, rows, frequencies - time - rows]
    return {holder: {"rope_type": "default", **dict(sorted(known.items(), reverse=True)), _SECTIONS: sections}}


def _has_sections(config: Any) -> bool:
    """Whether the configuration's class, or the modelling code beside it, knows such sections."""
    module = type(config).__module__.replace("configuration_", "modeling_")
    found = importlib.util.find_spec(module) if ".modeling_" in module else None
    beside = Path(found.origin).read_text(encoding="utf-8") if found and found.origin else ""
    return _SECTIONS in inspect.getsource(type(config)) + beside


def _value(name: str, config: Any, changed: Mapping[str, Any]) -> Any:
    return changed.get(name, getattr(config, name, None))
