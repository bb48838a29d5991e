"""Draw the picture of each measured page from the page's own figures: `python -m benchmarks.pictures [PAGE...]`.

Run it after a command that made a page. `pictures.toml` says which table or lines of the page the bars show. The page
shows its picture (docs/images/measured/PAGE.svg) below its first sentence, with the figures as alternative text.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from xml.sax.saxutils import escape

import click

ROOT = Path(__file__).parents[1]
PAGES, IMAGES = ROOT / "docs" / "measured", ROOT / "docs" / "images" / "measured"
_SPECS = Path(__file__).with_suffix(".toml")
_NUMBER = re.compile(r"(?P<text>(?P<value>\d[\d,.]*)(?: of (?P<whole>\d+))?(?: ?%| ?[kMG]i?B\b| m?s\b)?)")
_WIDTH, _LEFT, _TOP, _ROW, _LINE = 480, 12, 34, 42, 20
_CHARACTERS = 64
"""The most characters of a label and its figures in one line."""
_MOST_IN_TEXT = 8
STYLE = """.p{fill:#fff} text{fill:#0f172a} .r{fill:#e2e8f0}
.s0{fill:#0b6e99} .s1{fill:#7cb8d6} .s2{fill:#e0a458} .s3{fill:#b3541e} .s4{fill:#94a3b8}
@media (prefers-color-scheme: dark) {.p{fill:#0f172a} text{fill:#f1f5f9} .r{fill:#334155}}"""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a picture shows: rows of the page's table number `table`, or counts of lines.

    `label` and `parts` are columns, `rows` is a pattern of labels, `whole` the column or number of which parts are a
    share. `turned` swaps rows and columns first; `apart` gives each part its own bar; the first bar of each page of
    `earlier` comes first, with the page's name. For lines, `count` has a pattern for each part, and the last match of
    `by` names the bar.
    """

    title: str
    table: int = 0
    label: Sequence[str] = ("",)
    parts: Sequence[str] = ()
    rows: str = ""
    whole: str | float = ""
    most: int = 24
    turned: bool = False
    apart: bool = False
    earlier: Sequence[str] = ()
    by: str = ""
    count: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: the text and value of each part, and the value of the whole."""

    label: str
    parts: Mapping[str, tuple[str, float]]
    whole: float


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each Markdown table of a page; the first row has the headings."""
    found = []
    for block in re.findall(r"(?m)^\|.*\n\|[-:| ]+\|\n(?:\|.*\n?)*", text):
        rows = [
            [cell.strip(" `*") for cell in line[1:-1].split("|")] for line in block.replace("\\", "").splitlines()
        ]
        found.append([rows[0], *rows[2:]])
    return found


def bars(picture: Picture, text: str) -> list[Bar]:
    """Return the bars of a page's picture. Raises `ValueError` if the page has no figures for it."""
    found = list(_counted(picture, text) if picture.count else _of_table(picture, tables(text)[picture.table]))
    if picture.apart:
        pairs = [(one.label, part) for one in found for part in one.parts.items()]
        found = [Bar(label=f"{label}: {part[0]}", parts=dict([part]), whole=part[1][1]) for label, part in pairs]
    for name in reversed(picture.earlier):
        other = bars(replace(picture, earlier=()), (PAGES / f"{name}.md").read_text(encoding="utf-8"))[0]
        found.insert(0, replace(other, label=f"{other.label} in {name.replace('-', ' ')}"))
    if not found:
        raise ValueError(f"the page has no figures for its picture: {picture.title}")
    return found[: picture.most]


def _of_table(picture: Picture, rows: list[list[str]]) -> Iterator[Bar]:
    heads, *rest = [list(column) for column in zip(*rows, strict=True)] if picture.turned else rows
    first = ""
    for row in rest:
        row[0] = first = row[0] or first
        label = ", ".join(row[heads.index(one)] for one in picture.label).strip(", ")
        cells = {one: _NUMBER.match(row[heads.index(one)]) for one in picture.parts}
        matches = {one: match for one, match in cells.items() if match}
        if matches and re.search(picture.rows, label):
            column = picture.whole if isinstance(picture.whole, str) else ""
            of = f" of {row[heads.index(column)]}" if column and len(matches) == 1 else ""
            parts = {one: (match["text"] + of, _value(match["value"])) for one, match in matches.items()}
            wholes = [_value(match["whole"]) for match in matches.values() if match["whole"]]
            wholes += [_value(row[heads.index(column)])] if column else [float(picture.whole or 0)]
            yield Bar(label=label, parts=parts, whole=max(*wholes, sum(value for _, value in parts.values())))


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _counted(picture: Picture, text: str) -> Iterator[Bar]:
    found: dict[str, Counter[str]] = {}
    label = ""
    for line in text.splitlines():
        named = re.search(picture.by, line)
        label = named[1] if named else label
        for part, pattern in picture.count.items():
            found.setdefault(label, Counter())[part] += bool(re.search(pattern, line))
    for label, counts in found.items():
        if whole := counts.total():
            yield Bar(label=label, parts={one: (str(count), count) for one, count in counts.items()}, whole=whole)


def svg(title: str, found: Sequence[Bar]) -> str:
    """Return horizontal bars with their figures, for light and dark pages."""
    names = list(found[0].parts) if len(found[0].parts) > 1 else []
    top = _TOP + _LINE * len(names)
    height = top + _ROW * len(found) + 8
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" font-family="sans-serif" font-size="13">\n<title>{escape(title)}</title><style>{STYLE}</style>',
        f'<rect class="p" width="{_WIDTH}" height="{height}"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    for place, name in enumerate(names):
        y = _TOP + _LINE * place
        drawn.append(f'<rect class="s{place}" x="{_LEFT}" y="{y}" width="12" height="12"/>')
        drawn.append(f'<text x="{_LEFT + 18}" y="{y + 11}">{escape(name)}</text>')
    scale = (_WIDTH - 2 * _LEFT) / (max(one.whole for one in found) or 1)
    for place, one in enumerate(found):
        drawn += _drawn(one, top + _ROW * place, scale)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _drawn(one: Bar, y: int, scale: float) -> Iterator[str]:
    figures = " + ".join(text for text, _ in one.parts.values())
    most = _CHARACTERS - len(figures)
    label = one.label if len(one.label) <= most else f"{one.label[: most - 1]}…"
    yield f'<text x="{_LEFT}" y="{y + 14}">{escape(label)}</text>'
    yield f'<text x="{_WIDTH - _LEFT}" y="{y + 14}" text-anchor="end">{escape(figures)}</text>'
    yield f'<rect class="r" x="{_LEFT}" y="{y + 20}" width="{one.whole * scale:.1f}" height="14"/>'
    values = [value for _, value in one.parts.values()]
    for place, (start, value) in enumerate(zip(accumulate(values, initial=0.0), values, strict=False)):
        x, width = _LEFT + start * scale, value * scale
        yield f'<rect class="s{place}" x="{x:.1f}" y="{y + 20}" width="{width:.1f}" height="14"/>'


def with_picture(name: str, picture: Picture, text: str) -> tuple[str, str]:
    """Return the page with its picture below its first paragraph, and the picture."""
    found = bars(picture, text)
    more = f"; and {len(found) - _MOST_IN_TEXT} more" if len(found) > _MOST_IN_TEXT else ""
    figures = "; ".join(f"{one.label}: {_in_words(one)}" for one in found[:_MOST_IN_TEXT])
    line = f"![{picture.title}. {figures}{more}](../{IMAGES.relative_to(PAGES.parent).as_posix()}/{name}.svg)"
    before = re.sub(rf"(?m)^!\[.*/measured/{re.escape(name)}\.svg\)\n\n", "", text)
    head, first, rest = before.split("\n\n", 2)
    return f"{head}\n\n{first}\n\n{line}\n\n{rest}", svg(picture.title, found)


def _in_words(one: Bar) -> str:
    several = len(one.parts) > 1
    return ", ".join(f"{name} {text}" if several else text for name, (text, _) in one.parts.items())


def pictures() -> dict[str, Picture]:
    """Return what the picture of each page shows."""
    return {name: Picture(**one) for name, one in tomllib.loads(_SPECS.read_text(encoding="utf-8")).items()}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, metavar="[PAGE]...")
def main(names: tuple[str, ...]) -> None:
    """Draw the pictures of some pages, or of all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures().items():
        if not names or name in names:
            page = PAGES / f"{name}.md"
            text, drawn = with_picture(name, picture, page.read_text(encoding="utf-8"))
            page.write_text(text, encoding="utf-8")
            (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
