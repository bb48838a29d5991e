"""A rank of a mesh ends with whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys

from hwcompat.plugins.placement.mesh.starter import STARTER_VARIABLE

RANK = (
    "import time; from hwcompat.plugins.placement.mesh.starter import end_with_starter; "
    "end_with_starter(); time.sleep({})"
)


def test_whoever_was_gone_before_its_rank_looked_is_seen() -> None:
    starter = subprocess.Popen([sys.executable, "-c", ""])
    starter.wait()
    done = subprocess.run(
        [sys.executable, "-c", RANK.format(10)], env={**os.environ, STARTER_VARIABLE: str(starter.pid)}
    )
    assert done.returncode == 1


def test_a_rank_runs_on_beside_its_starter_and_alone() -> None:
    for told in ({STARTER_VARIABLE: str(os.getpid())}, {}):
        done = subprocess.run([sys.executable, "-c", RANK.format(2)], env={**os.environ, **told})
        assert done.returncode == 0
