"""`Refusal`: why a model type has no recipe in one version of its library, found out by trying."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from hardware.errors import BrokenInput


class Obstacle(StrEnum):
    """What stands in the way. All but `NOT_DERIVED` mean that nobody can build the type here as it comes."""

    NO_CLASS = "no_class"
    """No class with a forward: a part of other models, or one that only its parts compute."""
    MISSING_DEPENDENCY = "missing_dependency"
    """Importing or constructing its class asks for a package that isn't installed."""
    DEFAULTS_FAIL = "defaults_fail"
    """Its own constructor raises on its own untouched default configuration."""
    NOT_DERIVED = "not_derived"
    """It can be built, but no acceptable tiny model was found: a shortcoming of ours."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A model type without a recipe: what stands in the way, and the library's own words.

    `task` is empty where it is the type's primary one; `package` is what it lacks, as it is imported, where that is
    known.
    """

    model_type: str
    obstacle: Obstacle
    reason: str
    task: str = ""
    package: str = ""

    @property
    def is_outlived(self) -> bool:
        """Whether what was lacking is installed by now."""
        return bool(self.package) and importlib.util.find_spec(self.package) is not None

    @property
    def is_buildable(self) -> bool:
        """Whether the type counts among those that can be built."""
        return self.obstacle is Obstacle.NOT_DERIVED

    @property
    def cause(self) -> str:
        """Why there is nothing to run, in one line."""
        words = {
            Obstacle.NO_CLASS: "no class of the library is it alone",
            Obstacle.MISSING_DEPENDENCY: f"a package is missing{f', {self.package}' if self.package else ''}",
            Obstacle.DEFAULTS_FAIL: "the library can't build it with its own default configuration",
            Obstacle.NOT_DERIVED: "no tiny model of it is known whose faults would show",
        }
        return f"{self.model_type} has no suite: {words[self.obstacle]}: {self.reason.rstrip('.')}"

    @property
    def remedy(self) -> str:
        """What a user can do about it."""
        if self.obstacle is Obstacle.NO_CLASS:
            return "test the model that it is a part of"
        if self.obstacle is Obstacle.MISSING_DEPENDENCY:
            return f"install {self.package or 'what it asks for'}, then run the same command again"
        return f"test real weights: --model FOLDER, with a checkpoint of {self.model_type}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = asdict(self) | {"obstacle": str(self.obstacle)}
        return plain if self.package else {name: value for name, value in plain.items() if name != "package"}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Refusal:
        """The refusal that `to_dict` wrote. Raises `BrokenInput`."""
        try:
            return cls(**{**data, "obstacle": Obstacle(data["obstacle"])})
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenInput("a refusal cannot be read", why=str(error)) from error
