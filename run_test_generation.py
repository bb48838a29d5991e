"""`python run_test_generation.py OPTIONS`: the same as a line of `hwcompat`.

Without an option that names a job it writes suites: `hwcompat generate`. With `--run` it is `hwcompat run`.
"""

from __future__ import annotations

import sys

from hwcompat.cli import start

if __name__ == "__main__":
    sys.exit(start("earlier_scripts", "generation_main"))
