"""Which operators of traces a target's converter was seen to take: those in the traces of models that pass there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from generators.compatibility.calibration.held_out import is_held_out
from generators.compatibility.operators.traced import AT_LEAST, FILE
from generators.models.code_facts import code_facts
from hardware.cell import Cell
from hardware.evidence.kept import last_checks, read_kept
from hardware.evidence.record import CheckLine, Outcome
from hardware.target import Target
from hardware.whole_file import write_whole


def write_traced(target: str, file: Path, made_on: str, leave_out: Callable[[str], bool] = is_held_out) -> int:
    """Write the operators that at least `AT_LEAST` models have that pass every check in float32; how many they are.

    Types that are held out are left out, so that no prediction is scored on its own evidence; and since one model
    alone adds nothing, neither is that of the others.
    """
    checks = [line for line in read_kept(file) if isinstance(line, CheckLine)]
    seen: Counter[str] = Counter()
    for name, lines in last_checks(checks, Target(name=target)).items():
        cell = Cell.parse(name)
        if cell.precision != "float32" or cell.target.variant or leave_out(cell.model):
            continue
        known = code_facts(cell.model, cell.task)
        if known is not None and all(line.outcome is Outcome.PASSED for line in lines.values()):
            seen.update(set(known.trace_operators))
    taken = sorted(name for name, count in seen.items() if count >= AT_LEAST)
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    before[target] = {
        "made_by": f"python -m benchmarks.operators traced {target}",
        "made_on": made_on,
        "left_out": "types that are held out (generators/compatibility/calibration/held_out.py)",
        "operators": taken,
    }
    write_whole(FILE, json.dumps(before, indent=1, sort_keys=True) + "\n")
    return len(taken)
