"""Draw estimates against measurements of memory, both in logarithms: what is right lies on the diagonal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from hardware.plain_text import size_text

from ..pictures import ROOT, STYLE
from .estimating import Point

FILE = ROOT / "docs" / "images" / "measured" / "memory-points.svg"
_SIZE, _LEFT, _TOP, _BOTTOM = 420, 76, 98, 48
_MEASURED, _ESTIMATED = (2**27, 2**32), (2**16, 2**32)
"""The bytes at both ends of each axis."""
_MORE = ".o{fill:none;stroke:#94a3b8} .d0{fill:#0b6e99} .d1{fill:#e0a458} text{font-size:13px}"


def scatter(points: Sequence[Point]) -> str:
    """Return the picture of all points with an estimate: ours, and behind it accelerate's, which counts weights."""
    estimates = {
        "hwcompat": [(point["measured"], sum(point["parts"].values())) for point in points],
        "accelerate estimate-memory": [(point["measured"], point["rival"]) for point in points],
    }
    width, height = _LEFT + _SIZE + 16, _TOP + _SIZE + _BOTTOM
    title = f"Estimated against measured memory of {len(points)} requests"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="sans-serif">\n<title>{escape(title)}</title><style>{STYLE}{_MORE}</style>',
        f'<rect class="p" width="{width}" height="{height}"/><text x="12" y="22">{escape(title)}</text>',
        *(
            f'<circle class="d{place}" cx="18" cy="{40 + 20 * place}" r="4"/>'
            f'<text x="30" y="{45 + 20 * place}">{escape(name)}</text>'
            for place, name in enumerate(estimates)
        ),
        *_axes(),
    ]
    for place, pairs in reversed(list(enumerate(estimates.values()))):
        places = {(round(_x(measured)), round(_y(estimated))) for measured, estimated in pairs}
        drawn += [f'<circle class="d{place}" cx="{x}" cy="{y}" r="2"/>' for x, y in sorted(places)]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _axes() -> Iterator[str]:
    yield f'<rect class="o" x="{_LEFT}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}"/>'
    first, last = _MEASURED
    yield f'<path class="o" d="M{_x(first):.0f} {_y(first):.0f}L{_x(last):.0f} {_y(last):.0f}"/>'
    for size in (2**20, 2**24, 2**28, 2**29, 2**30, 2**31):
        text = size_text(size)
        yield f'<path class="o" d="M{_LEFT} {_y(size):.0f}h6"/>'
        yield f'<text x="{_LEFT - 6}" y="{_y(size) + 5:.0f}" text-anchor="end">{text}</text>'
        if size > first:
            yield f'<path class="o" d="M{_x(size):.0f} {_TOP + _SIZE}v-6"/>'
            yield f'<text x="{_x(size):.0f}" y="{_TOP + _SIZE + 18}" text-anchor="middle">{text}</text>'
    yield f'<text x="{_LEFT + _SIZE}" y="{_TOP + _SIZE + 40}" text-anchor="end">measured</text>'
    yield f'<text x="{_LEFT}" y="{_TOP - 8}">estimated</text>'


def _share(size: float, low: float, high: float) -> float:
    return math.log(min(max(size, low), high) / low) / math.log(high / low)


def _x(size: float) -> float:
    return _LEFT + _SIZE * _share(size, *_MEASURED)


def _y(size: float) -> float:
    return _TOP + _SIZE * (1 - _share(size, *_ESTIMATED))
