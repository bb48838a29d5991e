"""What every page shares: Jinja environment, one inline style and script, a policy that allows only these, and long
lists of which the first items stand in the page as they are, all others compressed until somebody asks for them.

Five thousand cells with their checks are forty megabytes of markup, and a few when they are packed. What is packed
was escaped as the rest of the page; the page's script unpacks it where it is opened, searched for or paged to.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.plain_text import size_text

from ..reason_text import explained_dict, texts_of
from ..text import moment_in_utc, printable, working

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_FOLDER = Path(__file__).parent


def render_page(template: str, scripts: Sequence[str], **values: Any) -> str:
    """The text of a page. `scripts` are the names of files of this folder, put inline in that order.

    Whatever `values` hold is escaped for HTML, and what a terminal or a reader could be fooled by is spelt out. The
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


def fragments(template: str, name: str, items: Iterable[Any], **values: Any) -> list[Markup]:
    """The text of a template for each item, which it knows by `name`; escaped as the rest of a page is."""
    from markupsafe import Markup

    render = _environment().get_template(template).render
    return [Markup(render({name: item, **values}).strip()) for item in items]


def environment(folder: Path) -> jinja2.Environment:
    """A Jinja environment for the templates of a folder, which escapes all that isn't markup."""
    import jinja2
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        if type(value) is str and value.isprintable():  # nearly always, and there are very many
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
        "working": working,
    }
    return made


@functools.cache
def _source(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def hash_source(text: str) -> str:
    """What a policy calls an inline style or script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(value: Any) -> str:
    """JSON that can stand in a script element: ASCII, and no sign that could end or open an element."""
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(_printable(value), separators=(",", ":"))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return str(value) if value.isprintable() else printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def moment(text: str) -> str:
    """`2026-01-02 03:04:05 UTC` for an ISO 8601 moment; anything else as it is."""
    read = moment_in_utc(text)
    return text if read is None else f"{read:%Y-%m-%d %H:%M:%S}{' UTC' if read.tzinfo else ''}"


SHOWN = 60
"""A list of at most so many items stands in the page as a whole, and so many of a longer one."""


@dataclass(frozen=True, kw_only=True)
class PagedList:
    """`shown` are the fragments that stand in the page. `rest` is what the script needs of a list that is longer, and
    None for one that is whole: the fragments in parcels of `size`, and an index to filter by."""

    shown: Sequence[str]
    number: int
    rest: Mapping[str, Any] | None


def paged(fragments: Sequence[str], index: Mapping[str, Sequence[str]], size: int = 100) -> PagedList:
    """A list of fragments. `index` has a text for each of them by the name of a filter's field."""
    if len(fragments) <= SHOWN:
        return PagedList(shown=fragments, number=len(fragments), rest=None)
    rest = {"index": index, "number": len(fragments), "page": SHOWN, **packed(fragments, size)}
    return PagedList(shown=fragments[:SHOWN], number=len(fragments), rest=rest)


def packed(fragments: Sequence[str], size: int) -> Mapping[str, Any]:
    """Fragments as parcels of `size`: each a JSON list, compressed with gzip, in base64."""
    parcels = []
    for start in range(0, len(fragments), size):
        texts = json.dumps(list(map(str, fragments[start : start + size])), ensure_ascii=False)
        # No moment goes into it: the same report is the same page.
        parcels.append(base64.b64encode(gzip.compress(texts.encode(), compresslevel=5, mtime=0)).decode("ascii"))
    return {"size": size, "parcels": parcels}
