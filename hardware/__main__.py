"""`python -m hardware COMMAND`: the same as `hwcompat devices COMMAND`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from hwcompat.cli import start

    sys.exit(start("earlier_scripts", "hardware_main"))
