"""Long lists of a page: the first items stand in it as they are, all others compressed until somebody asks for them.

Five thousand cells with their checks are forty megabytes of markup, and a few when they are packed. What is packed
was escaped as the rest of the page; the page's script unpacks it where it is opened, searched for or paged to.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    groups = (fragments[start : start + size] for start in range(0, len(fragments), size))
    return {"size": size, "parcels": [_parcel([str(text) for text in group]) for group in groups]}


def _parcel(texts: Sequence[str]) -> str:
    # No moment goes into it: the same report is the same page.
    packed_bytes = gzip.compress(json.dumps(texts, ensure_ascii=False).encode(), compresslevel=5, mtime=0)
    return base64.b64encode(packed_bytes).decode("ascii")


def unpacked(parcels: Mapping[str, Any]) -> list[str]:
    """The fragments again."""
    return [text for parcel in parcels["parcels"] for text in json.loads(gzip.decompress(base64.b64decode(parcel)))]
