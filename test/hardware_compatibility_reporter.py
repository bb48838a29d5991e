"""A door to the reporter for those who look for it here."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    runpy.run_path(str(Path(sys.path[0]) / "hardware_compatibility_reporter.py"), run_name="__main__")
