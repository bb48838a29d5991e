"""What the words of a measured level mean, read from `levels.toml`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hardware.evidence.error_types import facts_of_error_types

_FILE = Path(__file__).with_name("levels.toml")
_PARTS = re.compile(r"[.:/]+")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A condition of a run under which a pass is worth `medium` at most; `value` is `*` for any.

    `condition` is said of it, with a value of any kind where it has a `{}`, else behind it.
    """

    key: str
    value: str
    condition: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LevelRules:
    """The data file's contents, with the questions that the judge needs."""

    compares: str
    compares_reason: str
    proof: str
    proof_reason: str
    offloaded: str
    not_the_target: frozenset[str]
    clean_runs: int
    partial: frozenset[str]
    operators_with_parameters: tuple[str, ...]
    precision_names: Mapping[str, str]
    limits: tuple[Limit, ...]
    stated: Mapping[str, str]
    weights: tuple[str, ...]
    weights_conditions: Mapping[str, str]

    def has_parameters(self, operator: str) -> bool:
        """Whether an operator, under a runtime's name for it, is one that holds weights."""
        parts = _PARTS.split(operator.lower())
        return any(fnmatchcase(part, pattern) for part in parts for pattern in self.operators_with_parameters)

    def precision(self, name: str) -> str:
        """Our word for a runtime's name of a precision: `torch.float32` and `f32` are `float32`."""
        short = name.lower().removeprefix("torch.")
        return self.precision_names.get(short, short)

    def proves_enough(self, ran: str, asked: str) -> bool:
        """Whether the weights that ran prove at least what those that were asked for would. An unknown word proves
        nothing."""
        if ran not in self.weights or asked not in self.weights:
            return False
        return self.weights.index(ran) >= self.weights.index(asked)

    def limiting(self, conditions: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Yield those of a run's conditions, key and value, under which a pass is worth `medium` at most."""
        for limit in self.limits:
            value = conditions.get(limit.key)
            if value is not None and limit.value in ("*", value):
                yield limit.key, value

    def condition_text(self, key: str, value: str) -> str:
        """Return how a limiting condition is stated."""
        limit = next((one for one in self.limits if one.key == key and one.value in ("*", value)), None)
        if limit is None:
            return f"{key}: {value}"
        words = limit.condition if "{}" in limit.condition else f"{limit.condition}: {{}}"
        return limit.condition if limit.value != "*" else words.replace("{}", value)


def _harness() -> frozenset[str]:
    facts = facts_of_error_types()
    return frozenset(name for name in facts if facts[name].get("fault") == "harness")


@functools.cache
def level_rules() -> LevelRules:
    """The rules of the data file."""
    data = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    weights = dict(data["weights"])
    return LevelRules(
        **data["required"],
        not_the_target=frozenset(data["not_the_target"]["error_types"]) | _harness(),
        clean_runs=int(data["flaky"]["clean_runs"]),
        partial=frozenset(data["partial"]["error_types"]),
        operators_with_parameters=tuple(data["operators_with_parameters"]["patterns"]),
        precision_names=data["precision_names"],
        limits=tuple(Limit(**limit) for limit in data["limiting"]),
        stated={entry["target"]: entry["condition"] for entry in data["stated"]},
        weights=tuple(weights.pop("order")),
        weights_conditions=weights,
    )
