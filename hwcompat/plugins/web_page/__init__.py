"""What a page of checks is made of: captured from the own suite of a cell, and sealed."""

from __future__ import annotations

from hardware.plugins import Plugin

PLUGIN = Plugin(
    name="web_page",
    package=__name__,
    jobs={"web_page": ".web_page_command:write_web_page"},
)
