"""The loop of every worker's script: one JSON object per line in, one out, until standard input ends.

Standard output is reserved for answers; output of libraries goes to standard error. Imports nothing of the product.
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
    except Exception as error:  # the caller gets any error, and the next call may succeed
        return {"id": request["id"], "error": {"type": type(error).__name__, "message": str(error)}}


def serve(calls: Calls) -> None:
    """Answer calls until standard input ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: don't outlive the caller
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of native code is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(line, calls)) + "\n")
        answers.flush()
