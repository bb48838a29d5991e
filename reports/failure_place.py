"""The place in code where a finding failed, and the commands that show more of it."""

from __future__ import annotations

import re
import shlex

from hwcompat.hardware.cell import MODULE_TASK, PIECES_TASK, Cell
from hwcompat.hardware.command_names import PROGRAM
from hwcompat.hardware.errors import UsageError

WRONG_RESULTS = ("numerical_mismatch", "non_finite")
"""Error types of results that are there and wrong."""

_FRAME = re.compile(
    r'^\s{0,12}File "(?P<path>[^"\n]{1,500})", line (?P<line>\d{1,7}), in (?P<function>[^\n]{1,120})$'
    r"(?:\n\s{1,12}(?P<code>[^\n]{1,160}))?",
    re.MULTILINE,
)
_CALLERS = re.compile(r"site-packages/torch/|(^|/)(hwcompat|hardware)/(hardware/)?(testing|backends|model|export)/")
"""Files that only call what failed: torch's modules and this project."""
_ACCESS = ("__getattr__", "__getattribute__")


def failure_place(traceback: str) -> str:
    """Return where a traceback's error arose: the last frame outside of torch and of this project, else the last one.

    For example `transformers/cache_utils.py:1233, in __init__: n = 2 * m`. It is empty without a frame.
    """
    frames = [frame for frame in _FRAME.finditer(traceback) if frame["function"] not in _ACCESS]
    own = [frame for frame in frames if not _CALLERS.search(frame["path"])]
    if not frames:
        return ""
    last = (own or frames)[-1]
    path = last["path"].replace("\\", "/")
    short = path.rpartition("site-packages/")[2] if "site-packages/" in path else path.rpartition("/")[2]
    code = f": {last['code'].strip()}" if last["code"] else ""
    return f"{short}:{last['line']}, in {last['function']}{code}"


def culprit_frames(traceback: str) -> str:
    """Return a traceback's frames outside of torch and of this project, each complete; empty if there are none."""
    frames = [frame for frame in _FRAME.finditer(traceback) if frame["function"] not in _ACCESS]
    return "\n".join(frame[0] for frame in frames if not _CALLERS.search(frame["path"].replace("\\", "/")))


def failure_commands(cell: str, error_type: str) -> tuple[str, ...]:
    """Return the commands about a failing cell: run it again alone, find the first wrong module if its results are
    wrong, write a script for the maintainers, and try what may fix it. None for what isn't a cell."""
    try:
        known = Cell.parse(cell)
    except UsageError:
        return ()
    if known.task == PIECES_TASK:  # its check names the piece
        again = ["run", "--model", known.model, "--dims", "pieces", "--device", str(known.target)]
        return (shlex.join([PROGRAM, *again, "--precision", known.precision]),)
    again = ["run", "--model", known.model, "--device", str(known.target), "--precision", known.precision]
    own_code = known.task == MODULE_TASK
    words = [again] if "@" not in known.model and not own_code else []  # a cell doesn't name folder or factory
    words += [["localize", cell]] if error_type in WRONG_RESULTS else []
    words += [["fix", cell]] if own_code else [["repro", cell], ["fix", cell]]  # own code isn't put into a script
    return tuple(shlex.join([PROGRAM, *one]) for one in words)
