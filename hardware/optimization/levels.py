"""How much may be done to a model to make it faster."""

from __future__ import annotations

from enum import StrEnum

from ..errors import UsageError, did_you_mean, echo


class OptimizationLevel(StrEnum):
    """Each holds what those before it hold.

    O0 places the model and does nothing else: suites run so. O1 is mixed precision where the hardware computes in it,
    another memory format, and what can be folded without changing a number that matters. O2, the default for users,
    compiles; in training it recomputes activations instead of keeping them. O3 computes in 8 bits.
    """

    O0 = "O0"
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"

    @classmethod
    def from_string(cls, text: str) -> OptimizationLevel:
        """The level that a name or one of its aliases means, in any case. Raises `UsageError` for any other."""
        name = text.strip().lower()
        found = _NAMES.get(name)
        if found is None:
            known = ", ".join(f"{level} ({', '.join(names)})" for level, names in _ALIASES.items())
            raise UsageError(
                f"unknown optimisation level {echo(text)}",
                fix=f"{did_you_mean(name, _NAMES)} Known: {known}.".strip(),
            )
        return found

    @property
    def rank(self) -> int:
        """0 to 3."""
        return int(self.value[1])


_ALIASES = {
    OptimizationLevel.O0: ("none", "off", "disabled", "0"),
    OptimizationLevel.O1: ("conservative", "basic", "1"),
    OptimizationLevel.O2: ("balanced", "default", "2"),
    OptimizationLevel.O3: ("aggressive", "max", "3"),
}
_NAMES = {name: level for level, names in _ALIASES.items() for name in (level.value.lower(), *names)}
