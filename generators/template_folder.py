"""Where the product's templates lie: beside the floors in a checkout, in this package where it was installed."""

from __future__ import annotations

from pathlib import Path

_PACKAGED = Path(__file__).with_name("templates")

TEMPLATES = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "templates"
"""Its own folder comes first: beside an installed package may lie anybody's `templates`."""
