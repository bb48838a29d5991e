"""A badge as SVG: how many of the measured cells work. Made here, without a server of badges."""

from __future__ import annotations

from html import escape

from hwcompat.generators.compatibility.verdict import Basis, Level

from ..report import Report
from . import Format

_LABEL = "hwcompat"
_WORKS, _FAILS, _OPEN = "#116329", "#a40e26", "#57606a"
"""White letters have a contrast of at least 5.9:1 on each."""
_HEIGHT, _LETTER, _SPACE = 20, 6.6, 12


def badge(report: Report) -> str:
    """Return the SVG. A cell works if its measured level is `high` or `medium`; what wasn't measured is unknown."""
    verdicts = [cell.verdict for cell in report.cells]
    levels = [one.level if one.basis is Basis.MEASURED else Level.UNKNOWN for one in verdicts]
    works = sum(level in (Level.HIGH, Level.MEDIUM) for level in levels)
    unknown = sum(level is Level.UNKNOWN for level in levels)
    fails = len(levels) - works - unknown
    said = f"{works} of {len(levels)} cells work" if levels else "nothing measured"
    if unknown and levels:
        said += f", {unknown} unknown"
    color = _FAILS if fails else _OPEN if unknown or not levels else _WORKS
    left, right = (round(len(text) * _LETTER + _SPACE) for text in (_LABEL, said))
    whole = escape(f"{_LABEL}: {said}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f'aria-label="{whole}"><title>{whole}</title>'
        f'<rect width="{left}" height="{_HEIGHT}" fill="#24292f"/>'
        f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="{color}"/>'
        '<g fill="#ffffff" text-anchor="middle" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">'
        f'<text x="{left / 2:g}" y="14">{_LABEL}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(said)}</text></g></svg>\n'
    )


FORMAT = Format(suffix="svg", render=badge)
