"""A rank ends with whoever started it: killed, that one can't end its ranks, and nobody waits for them any more."""

from __future__ import annotations

import os
import threading
import time

STARTER_VARIABLE = "MESH_STARTER"
"""Its process id, told by itself: a rank that asked for its parent's could find that of whoever adopts orphans."""
_LOOK_S = 1.0


def end_with_starter() -> None:
    """Watch it from a thread; this process ends within a second or so of it. Does nothing where no one is named."""
    if starter := os.environ.get(STARTER_VARIABLE):
        threading.Thread(target=_watch, args=(int(starter),), daemon=True).start()


def _watch(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(_LOOK_S)
    os._exit(1)
