"""`python hardware_compatibility_reporter.py OPTIONS`: the same as a line of `hwcompat`.

`--collect-all`, `--matrix`, `--test-hardware` and `--check-model` are options of `hwcompat report`.
"""

from __future__ import annotations

import sys

from hwcompat.cli import start

if __name__ == "__main__":
    sys.exit(start("earlier_scripts", "reporter_main"))
else:
    from hwcompat.reports.reporter import HardwareCompatibilityReporter

    __all__ = ["HardwareCompatibilityReporter"]
