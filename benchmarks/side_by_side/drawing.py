"""Draw curves as SVG with logarithmic axes: a line with points for each name, labeled at its end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from .result import Curve

_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 210, 40, 50
_LABEL = 15.0
"""The smallest distance between labels, so that none overlap."""
_INK = ("#0b6e99", "#b3541e", "#4d7c0f", "#7c3aed", "#be185d", "#475569")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4")
"""Dashes distinguish lines in addition to colors."""


def svg(curve: Curve) -> str:
    """Return the curve as a picture for light and dark pages."""
    xs = [x for own in curve.points.values() for x, _ in own]
    ys = [max(y, 1e-6) for own in curve.points.values() for _, y in own]
    across, up = _Scale(xs, _LEFT, _WIDTH - _RIGHT), _Scale(ys, _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{escape(curve.title)}</title>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="20" font-size="15" fill="#111">{escape(curve.title)}</text>',
    ]
    for value in across.ticks():
        x = across.place(value)
        parts.append(f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_short(value)}</text>')
    for value in up.ticks():
        y = up.place(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(curve.x)}</text>'
    )
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{escape(curve.y)}</text>'
    )
    ends = _spread_labels([up.place(max(own[-1][1], 1e-6)) for own in curve.points.values()])
    for number, (name, own) in enumerate(curve.points.items()):
        ink, dash = _INK[number % len(_INK)], _DASHES[number % len(_DASHES)]
        places = [(across.place(x), up.place(max(y, 1e-6))) for x, y in own]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{ink}" stroke-width="2" stroke-dasharray="{dash}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{ink}"/>' for x, y in places]
        x, y = _WIDTH - _RIGHT + 10, ends[number]
        parts.append(f'<text x="{x}" y="{y + 4:.1f}" fill="{ink}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    """Maps values to positions by their logarithms."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low, self.high = math.log10(min(values)), math.log10(max(values))
        if self.high - self.low < 0.3:
            self.low, self.high = self.low - 0.2, self.high + 0.2
        self.first, self.last = first, last

    def place(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Return powers of ten in the range, with multiples of 2 and 5 if there are few."""
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        factors = (1,) if len(powers) > 5 else (1, 3) if len(powers) > 3 else (1, 2, 5)
        found = [factor * 10.0**power for power in powers for factor in factors]
        return [one for one in found if self.low - 1e-9 <= math.log10(one) <= self.high + 1e-9]


def _spread_labels(places: Sequence[float]) -> list[float]:
    """Return the positions of labels, moved down until none overlap."""
    found = list(places)
    order = sorted(range(len(places)), key=lambda number: places[number])
    for before, after in itertools.pairwise(order):
        found[after] = max(found[after], found[before] + _LABEL)
    return found


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    return f"{value / 1000:g} k" if value >= 1000 else f"{value:g}"
