"""Pages of checks for browsers: captured from the suite of a cell, and signed with a hash."""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="web_page",
    package=__name__,
    jobs={"web_page": ".web_page_command:write_web_page"},
)
