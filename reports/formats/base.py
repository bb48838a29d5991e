"""What a format of reports is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..report import Report


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form that a report can have. A module of this folder makes one; its name is the name of the module.

    `suffix` is the end of a file's name without the dot. `render` returns the text of a report.
    """

    suffix: str
    render: Callable[[Report], str]
