"""The check of a suite that builds models of the same type with other settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..compare import Array
from .argument_checks import ArgumentChecks, drawn_inputs

if TYPE_CHECKING:
    import torch


def with_changes(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of constructor arguments with changes by path: `text_config.head_dim` is inside `text_config`."""
    found: dict[str, Any] = copy.deepcopy(dict(config))
    for path, value in changes.items():
        *scopes, name = path.split(".")
        inner = found
        for scope in scopes:
            inner = inner.setdefault(scope, {})
        inner[name] = copy.deepcopy(value)
    return found


class VariantChecks(ArgumentChecks):
    """The part of `ModelTest` that tests models with other settings than its own."""

    inputs: dict[str, Array]
    gain: float | None
    zero_centered: tuple[str, ...]
    _own_tolerance: float | None

    def variant_error(
        self,
        make_model: Callable[[Mapping[str, Any]], torch.nn.Module],
        output: str,
        *,
        changes: Mapping[str, Any],
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
        attention: bool = False,
        decodes: bool = False,
        shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> float:
        """Return the largest error of a model with changed settings: its outputs against float64 and recorded
        numbers; its default `attention` against the plain one in float64, if it can choose; and its cached steps
        against one float64 pass, if it `decodes`. Inputs of `shapes` come with those of the type. The worst output is
        named with the settings."""
        inputs = {**self.inputs, **drawn_inputs(shapes, len(self.inputs["input_ids"]))} if shapes else self.inputs
        with self._with_settings(make_model, changes, inputs) as other:
            other.measured = self.measured
            errors: list[float] = [other.error(other.run(inputs), other.reference(inputs))]
            errors.append(other.recorded_error(output, recorded, scale))
            if attention:
                errors.append(other.attention_error(inputs))
            if decodes:
                errors.append(other.replay_error(other.generate()))
            found = self.measured.comparison
            if found is not None and found.max_rel_error == max(errors):
                self.measured.comparison = replace(found, worst=f"{found.worst} with {dict(changes)}")
        return max(errors)

    def _with_settings(
        self,
        make_model: Callable[[Mapping[str, Any]], torch.nn.Module],
        changes: Mapping[str, Any],
        inputs: Mapping[str, Array],
    ) -> Any:
        """Return a test of a model with changed settings and these inputs, and all else as in this one."""
        made: Any = type(self)
        return made(
            str(self.cell),
            lambda: make_model(changes),
            inputs,
            gain=self.gain,
            outputs=self.required,
            masked_by=self.masked_by,
            generates=self.generates,
            trains_only=self.trains_only,
            zero_centered=self.zero_centered,
            recorded_with=self.recorded_with,
            tolerance=self._own_tolerance,
        )
