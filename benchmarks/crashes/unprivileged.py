"""`python -m benchmarks.crashes.unprivileged SCRIPT …`: run a script without root's right to override file modes."""

from __future__ import annotations

import os
import sys

from .disks import drop_override

if __name__ == "__main__":
    drop_override()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
