"""`python -m hwcompat`, and `python PATH/hwcompat` for a checkout that isn't installed."""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from hwcompat.cli import start

if __name__ == "__main__":
    sys.exit(start("main_program"))
