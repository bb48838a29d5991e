"""Suites without a model: they pass, die, leave processes behind, and find no room."""

from __future__ import annotations

GOOD = "def test_first():\n    pass\n\n\ndef test_second():\n    pass\n"
DIES = """
import os


def test_first():
    pass


def test_second():
    os.abort()


def test_third():
    pass
"""
LEAVES = """
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def test_first():
    worker = [sys.executable, "-I", "-c", "import tempfile; print(tempfile.mkdtemp())"]
    its = subprocess.run(worker, check=True, capture_output=True, text=True).stdout.strip()
    Path({note!r}).write_text("\\n".join([its, tempfile.mkdtemp()]))
    {ends}
"""
LOOKS = """
from pathlib import Path


def test_first():
    there = [name for name in Path({note!r}).read_text().splitlines() if Path(name).exists()]
    Path({note!r}).with_name("there").write_text(str(len(there)))
"""
NOTES = """
import os
import time
from pathlib import Path


def test_first():
    note = Path({folder!r}) / f"{{CELL.split('/')[2]}}-{{os.getpid()}}-{{time.monotonic_ns()}}"
    note.touch()
    time.sleep({seconds})
    note.write_text(str(time.monotonic_ns()))
"""
FULL = """
import resource


def test_first():
    pass


def test_second():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # nothing can be written any more


def test_third():
    pass
"""
STARTS = """
import os
import subprocess
import sys
from pathlib import Path


def test_first():
    started = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"])
    Path({note!r}).write_text(str(started.pid))
    {ends}
"""
NO_ROOM = """
import errno


def test_first():
    raise RuntimeError("kept nowhere") from OSError({number}, "refused")


def test_second():
    pass
"""
