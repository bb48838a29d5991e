"""Where results lie unless the user says otherwise, and where caches lie: the user's, or `HWCOMPAT_CACHE`."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import OutputError

OUTPUT = Path("hwcompat-out")
DEFAULT_SUITES = OUTPUT / "suites"
DEFAULT_EVIDENCE = OUTPUT / "evidence"
DEFAULT_REPORTS = OUTPUT / "reports"

CACHE_VARIABLE = "HWCOMPAT_CACHE"


def cache_folder(kind: str) -> Path:
    """The folder of one kind of cached thing (`exports`, `references`, `recipes`), made if it isn't there."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        root = Path(named)
    else:
        import platformdirs

        root = platformdirs.user_cache_path("hwcompat")
    folder = root / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the cache folder {root} cannot be written",
            why=error.strerror or "",
            fix=f"Name another in {CACHE_VARIABLE}.",
        ) from error
    return folder
