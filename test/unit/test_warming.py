"""What the warm parent does before a suite runs is heard by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_silenced_stays_so_where_output_is_held_back_in_a_buffer():
    code = (
        "from hardware.testing.warm import _silenced\n"
        "print('before')\n"
        "with _silenced():\n"
        "    print('not to be heard')\n"
        "print('after')\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    )
    assert done.stdout == "before\nafter\n"
