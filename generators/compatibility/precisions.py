"""Which precisions a target is asked for at all, as its backend says: what no backend computes is never measured."""

from __future__ import annotations

from hardware.backends.factory import backend_class, class_of, known_targets
from hardware.errors import BrokenPlugin
from hardware.target import Target

_EVERYWHERE = "float32"


def not_computed(target: Target, precision: str) -> str:
    """Why this tool doesn't ask a target for a precision; empty where it does, and where nobody knows the target."""
    if precision == _EVERYWHERE or target.name not in known_targets():
        return ""
    try:
        known = class_of(target).PRECISIONS
    except BrokenPlugin:  # planning tells of it
        return ""
    return "" if precision in known else f"{target} in {precision}: hwcompat runs it in {', '.join(known)} only"


def computing(precision: str) -> tuple[str, ...]:
    """The names of the targets with a device behind them that compute in a precision."""
    return tuple(
        name
        for name in known_targets()
        if not not_computed(Target(name=name), precision) and not backend_class(name).SIMULATED
    )
