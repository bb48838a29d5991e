"""The formats of a report by name: the modules of this folder and the entry points `hwcompat.formats`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwcompat.hardware.errors import UsageError, did_you_mean, echo
from hwcompat.hardware.registry import Registry

if TYPE_CHECKING:
    from ..report import Report


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of a report, defined by a module of this folder with its name.

    `suffix` is the end of a file's name without the dot. `render` returns the text of a report.
    """

    suffix: str
    render: Callable[[Report], str]


OF_A_RUN = ("markdown", "json", "html", "junit", "sarif")
"""Written by every run; the others are for CI servers, and only made when requested."""

FORMATS: Registry[Format] = Registry(
    group="hwcompat.formats", package=__name__, kind=Format, noun="format of a report", first=OF_A_RUN
)


def report_text(report: Report, format: str = "markdown") -> str:
    """Return the report in a format. Raises `UsageError` for an unknown one."""
    known = FORMATS.names()
    if format not in known:
        fix = did_you_mean(format, known) or f"Known: {', '.join(known)}."
        raise UsageError(f"{echo(format)} is not a report format", fix=fix)
    return FORMATS.load(format).render(report)


def suffix_of(format: str) -> str:
    """Return the suffix of a report's file in a known format, without the dot."""
    return FORMATS.load(format).suffix
