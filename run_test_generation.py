"""`python run_test_generation.py OPTIONS`: the same as a line of `hwcompat`.

Without an option that names a job it writes suites: `hwcompat generate`. With `--run` it is `hwcompat run`.
"""

from __future__ import annotations

import sys

from hwcompat.cli.earlier_scripts import generation_main

if __name__ == "__main__":
    sys.exit(generation_main())
