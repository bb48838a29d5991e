"""Parts of every page: the Jinja environment, one inline style and script, a policy that allows only these, and long
lists of which the first items are shown directly and all others are compressed until they are needed.

Five thousand cells with their checks are forty megabytes of markup, and a few when compressed. Compressed items are
escaped like the rest; the page's script unpacks them when they are opened, searched for or paged to.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.plain_text import size_text

from ..reason_text import explained_dict, texts_of
from ..text import moment_in_utc, printable

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

    from ..document import Block

_FOLDER = Path(__file__).parent


def render_page(template: str, scripts: Sequence[str], **values: Any) -> str:
    """Return a page. `scripts` are the names of files of this folder, put inline in that order.

    `values` are escaped for HTML, and characters that could deceive a terminal or a reader are spelled out. The
    page's policy names its style and script by hash: nothing else is applied or run, and nothing is fetched.
    """
    from markupsafe import Markup

    style = _source("style.css")
    script = "\n".join(_source(name) for name in scripts)
    policy = f"default-src 'none'; base-uri 'none'; style-src {hash_source(style)}; script-src {hash_source(script)}"
    text = (
        _environment()
        .get_template(template)
        .render(policy=Markup(policy), style=Markup(style), script=Markup(script), **values)
    )
    return text if text.endswith("\n") else f"{text}\n"


def document_page(title: str, blocks: Iterable[Block], shares: Mapping[str, int] | None = None) -> str:
    """Return a page of the blocks of `document.py`; below the first, a bar has the `shares` that aren't 0."""
    shown = {name: number for name, number in (shares or {}).items() if number}
    return render_page("document.html.j2", (), title=title, blocks=list(blocks), shares=shown)


def fragments(template: str, name: str, items: Iterable[Any], **values: Any) -> list[Markup]:
    """Return the text of a template for each item, which it knows by `name`; escaped like the rest of a page."""
    from markupsafe import Markup

    render = _environment().get_template(template).render
    return [Markup(render({name: item, **values}).strip()) for item in items]


def environment(folder: Path) -> jinja2.Environment:
    """Return a Jinja environment for the templates of a folder, which escapes everything that isn't markup."""
    import jinja2
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        if type(value) is str and value.isprintable():  # the common case, and there are many values
            return value
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )


@functools.cache
def _environment() -> jinja2.Environment:
    made = environment(_FOLDER)
    made.filters |= {
        "moment": moment,
        "size": size_text,
        "embedded": _embedded,
        "explained": explained_dict,
        "texts": texts_of,
        "thousands": "{:,}".format,
    }
    return made


@functools.cache
def _source(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def hash_source(text: str) -> str:
    """Return the name of an inline style or script in a policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(value: Any) -> str:
    """Return JSON for a script element: ASCII, and no character that could end or open an element."""
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(_printable(value), separators=(",", ":"))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return str(value) if value.isprintable() else printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def moment(text: str) -> str:
    """Return `2026-01-02 03:04:05 UTC` for an ISO 8601 time; anything else unchanged."""
    read = moment_in_utc(text)
    return text if read is None else f"{read:%Y-%m-%d %H:%M:%S}{' UTC' if read.tzinfo else ''}"


SHOWN = 60
"""A list up to this length is shown directly, and as many items of a longer one."""


@dataclass(frozen=True, kw_only=True)
class PagedList:
    """`shown` are the fragments that are shown directly. `rest` is what the script needs: an index to filter and sort
    by, and of a longer list the fragments in chunks of `size`."""

    shown: Sequence[str]
    number: int
    rest: Mapping[str, Any]


def paged(fragments: Sequence[str], index: Mapping[str, Sequence[Any]], size: int = 100) -> PagedList:
    """Return a list of fragments. `index` has their values by the name of a filter's field or column."""
    rest = {"index": index, "number": len(fragments), "page": SHOWN}
    if len(fragments) <= SHOWN:
        return PagedList(shown=fragments, number=len(fragments), rest=rest)
    return PagedList(shown=fragments[:SHOWN], number=len(fragments), rest={**rest, **packed(fragments, size)})


_FIGURES = re.compile(r"([\d.]+)")
_FIRST_SIGN = 0xE000  # of Unicode's private use; texts have none, because `printable` spells such characters out


def packed(fragments: Sequence[str], size: int) -> Mapping[str, Any]:
    """Return fragments as chunks of `size`: each a JSON list, compressed with gzip, in base64.

    Fragments are alike but for their figures: what stands between figures in many of them is in `words` once, and one
    character (`_FIRST_SIGN` and the place in `words`) in the fragments. That halves what gzip makes of them.
    """
    sample = fragments[:: max(1, len(fragments) // 500)]
    pieces = Counter(piece for text in sample for piece in _FIGURES.split(str(text)) if len(piece) > 3)
    words = [piece for piece, number in pieces.most_common(6000) if number > 7]
    short = {word: chr(_FIRST_SIGN + place) for place, word in enumerate(words)}
    chunks = []
    for start in range(0, len(fragments), size):
        split = (_FIGURES.split(str(text)) for text in fragments[start : start + size])
        texts = json.dumps(["".join([short.get(piece, piece) for piece in one]) for one in split], ensure_ascii=False)
        # No time is recorded, so that the same report is the same page.
        chunks.append(base64.b64encode(gzip.compress(texts.encode(), mtime=0)).decode("ascii"))
    return {"size": size, "words": words, "chunks": chunks}
