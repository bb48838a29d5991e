"""A diagnosis as text: a table for a terminal of 80 columns, what to do below it."""

from __future__ import annotations

from collections.abc import Sequence

from ..own_commands import as_runnable
from ..plain_text import columns, folded, printable
from .diagnosis import Diagnosis, Finding, Health

_SIGNS = {
    Health.WORKS: "ok",
    Health.EXPECTED: "ok?",
    Health.UNUSABLE: "!!",
    Health.BROKEN: "!!",
}


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """The diagnosis as a table; it ends in a newline."""
    lines: list[str] = []
    for kind, title in (("vendor", "Vendors"), ("target", "Targets")):
        found = [one for one in diagnosis.findings if one.kind == kind]
        if found:
            lines += [title, "-" * len(title), *_rows(found), ""]
    lines += _what_to_do("What to do", diagnosis.problems)
    lines += _what_to_do("What could be added", [one for one in diagnosis.findings if one.health is Health.OPTIONAL])
    return "\n".join([*lines, _verdict(diagnosis), ""])


def _rows(findings: Sequence[Finding]) -> list[str]:
    rows = [(f"  {_SIGNS.get(one.health, '-'):<3}", one.name, str(one.health), one.reason) for one in findings]
    return columns(("", "name", "state", "reason"), rows)


def _what_to_do(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = [title, "-" * len(title)]
    for one in findings:
        lines += folded("", f"{one.name}: {one.reason or one.health}")
        if not one.remedies:
            lines.append("  Nobody has written down what to do here.")
        for remedy in one.remedies:
            lines.append(f"    {printable(remedy.command)}")  # never folded: it is to be copied
            if remedy.note:
                lines += folded("  ", remedy.note)
            if remedy.source:
                lines += folded("  Source: ", remedy.source, indent=4)
    return [*lines, ""]


def _verdict(diagnosis: Diagnosis) -> str:
    count = len(diagnosis.problems)
    if count:
        again = as_runnable("python -m hardware doctor")
        return f"{count} problem{'s' if count > 1 else ''}. Check again with: {again}"
    if diagnosis.checked:
        return "Everything that is expected here works."
    return "Nothing that is present is unusable; nothing was computed."
