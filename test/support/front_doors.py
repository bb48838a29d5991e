"""The reporter's front door, loaded by its path: test/ has a door of the same name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("reporter_door", ROOT / "hardware_compatibility_reporter.py")
reporter = sys.modules["reporter_door"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reporter)
