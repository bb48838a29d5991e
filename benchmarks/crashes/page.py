"""The page of what came of the bench."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from .result import Kept


def page_text(found: Sequence[Kept], *, command: str) -> str:
    """Markdown."""
    rows = []
    for kind in sorted({one.kind for one in found}):
        own = [one for one in found if one.kind == kind]
        rows.append(
            (
                kind,
                len(own),
                sum(bool(one.facts.get("landed", True)) for one in own),
                sum(bool(one.wrong) for one in own),
            )
        )
    return tabulate(rows, headers=("kind", "cases", "landed", "wrong"), tablefmt="github")
