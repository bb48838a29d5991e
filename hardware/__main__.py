"""`python -m hardware COMMAND`: the same as `hwcompat devices COMMAND`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from hwcompat.cli.earlier_scripts import hardware_main

    sys.exit(hardware_main())
