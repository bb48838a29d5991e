"""What every worker's script does alike: a JSON object a line comes in, one goes out, until standard input ends.

Standard output is kept for answers; what libraries print goes to standard error. Imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

Calls = Mapping[str, Callable[..., dict[str, Any]]]


def _answer(line: str, calls: Calls) -> dict[str, Any]:
    request = json.loads(line)
    try:
        return {"id": request["id"], "result": calls[request["do"]](**request["arguments"])}
    except Exception as error:  # whatever it is, the caller is told, and the next call may be right
        return {"id": request["id"], "error": {"type": type(error).__name__, "message": str(error)}}


def serve(calls: Calls) -> None:
    """Answer until standard input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: don't outlive the caller
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what native code prints is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(line, calls)) + "\n")
        answers.flush()
