"""Changes of evidence that could make a failing cell look green.

Each changes lines in place and returns whether there was anything to change.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .victims import Files, Victim

Line = dict[str, Any]
_NO_FAULT: Line = {
    "outcome": "passed",
    "error_type": "",
    "error_message": "",
    "traceback": "",
    "stage": None,
    "substitution_reason": "",
}


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """A change for victims in some `states`. `needs_skill` if all figures of a line are kept consistent."""

    name: str
    describe: str
    states: tuple[str, ...]
    apply: Callable[[Files, Victim], bool]
    needs_skill: bool = False


def _checks(files: Files, cell: str) -> Iterator[Line]:
    yield from (
        line for lines in files.values() for line in lines if line["kind"] == "check" and line["cell_id"] == cell
    )


def _runs(files: Files, cell: str) -> Iterator[Line]:
    for lines in files.values():
        yield from (
            line for line in lines if line["kind"] == "run" and any(one["cell_id"] == cell for one in line["plan"])
        )


def _bad(files: Files, cell: str) -> list[Line]:
    return [line for line in _checks(files, cell) if line["outcome"] != "passed"]


def _outcome(files: Files, victim: Victim) -> bool:
    bad = _bad(files, victim.cell_id)
    for line in bad:
        line["outcome"] = "passed"
    return bool(bad)


def _limit(files: Files, victim: Victim) -> bool:
    bad = _bad(files, victim.cell_id)
    for line in bad:
        line |= _NO_FAULT
        line["tolerance"] = (
            1e9
            if line["tolerance"] is None or line["max_rel_error"] in (None, "inf", "nan")
            else 2 * line["max_rel_error"]
        )
    return bool(bad)


def _whole_line(files: Files, victim: Victim) -> bool:
    bad = _bad(files, victim.cell_id)
    for line in bad:
        line |= _NO_FAULT
        _fitting(line, victim)
    return bool(bad)


def _fitting(line: Line, victim: Victim) -> None:
    line["max_rel_error"], line["max_abs_error"] = 1e-6, 1e-7
    line["tolerance"] = 2e-5
    line["actual_target"], line["actual_dtype"] = victim.cell_id.split("/")[2], "float32"
    line["native_ops"] = line["native_ops"] or {"aten::addmm": 12}
    line["offloaded_ops"] = {}
    line["conditions"] = {name: text for name, text in line["conditions"].items() if name != "edited"}


def _removed(files: Files, victim: Victim) -> bool:
    bad = _bad(files, victim.cell_id)
    for lines in files.values():
        lines[:] = [line for line in lines if line not in bad]
    return bool(bad)


def _unplanned(files: Files, victim: Victim) -> bool:
    gone = {line["check_name"] for line in _bad(files, victim.cell_id)}
    if victim.state == "killed":
        there = {line["check_name"] for line in _checks(files, victim.cell_id)}
        gone = {
            name
            for run in _runs(files, victim.cell_id)
            for one in run["plan"]
            if one["cell_id"] == victim.cell_id
            for name in one["checks"]
            if name not in there
        }
    _removed(files, victim)
    for run in _runs(files, victim.cell_id):
        for one in run["plan"]:
            if one["cell_id"] == victim.cell_id:
                one["checks"] = [name for name in one["checks"] if name not in gone]
    return bool(gone)


def _added_line(files: Files, victim: Victim) -> bool:
    bad = _bad(files, victim.cell_id)
    for lines in files.values():
        for line in [one for one in lines if one in bad]:
            more = copy.deepcopy(line) | _NO_FAULT
            _fitting(more, victim)
            lines.append(more)
    return bool(bad)


def _added_file(files: Files, victim: Victim) -> bool:
    """Add lines of a run that wasn't planned."""
    lines = [
        copy.deepcopy(line) | _NO_FAULT | {"run_id": "20990101T000000Z-000000"}
        for line in _checks(files, victim.cell_id)
    ]
    for line in lines:
        _fitting(line, victim)
    files["20990101T000000Z-000000-1.jsonl"] = lines
    return bool(lines)


def _borrowed(files: Files, victim: Victim) -> bool:
    """Add the lines of a green cell under the victim's name."""
    model, task, _, _ = victim.cell_id.split("/")
    donors = list(_checks(files, victim.donor))
    for lines in files.values():
        lines[:] = [line for line in lines if not (line["kind"] == "check" and line["cell_id"] == victim.cell_id)]
    for lines in files.values():
        for line in [one for one in lines if one in donors]:
            lines.append(copy.deepcopy(line) | {"cell_id": victim.cell_id, "model": model, "task": task})
    return bool(donors)


def _target(files: Files, victim: Victim) -> bool:
    bad = list(_checks(files, victim.cell_id))
    for line in bad:
        line["actual_target"], line["substitution_reason"] = victim.cell_id.split("/")[2], ""
        if line["outcome"] == "passed_on_fallback":
            line["outcome"] = "passed"
    return bool(bad)


def _reason(files: Files, victim: Victim) -> bool:
    bad = [line for line in _checks(files, victim.cell_id) if line["substitution_reason"]]
    for line in bad:
        line["substitution_reason"] = ""
        line["outcome"] = "passed"
    return bool(bad)


def _versions(files: Files, victim: Victim) -> bool:
    for run in _runs(files, victim.cell_id):
        run["versions"] = {}
    return True


def _these_versions(files: Files, victim: Victim) -> bool:
    from importlib.metadata import version

    for run in _runs(files, victim.cell_id):
        run["versions"]["torch"] = version("torch")
    return True


def _dated(days: int) -> Callable[[Files, Victim], bool]:
    def apply(files: Files, victim: Victim) -> bool:
        moment = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)).isoformat(
            timespec="microseconds"
        )
        for line in _checks(files, victim.cell_id):
            line["started_at"] = moment
        if victim.state == "broken":
            _whole_line(files, victim)
        return True

    return apply


def _mark(files: Files, victim: Victim) -> bool:
    marked = [line for line in _checks(files, victim.cell_id) if "edited" in line["conditions"]]
    for line in marked:
        del line["conditions"]["edited"]
    return bool(marked)


def _run_line_gone(files: Files, victim: Victim) -> bool:
    for lines in files.values():
        lines[:] = [line for line in lines if line["kind"] != "run"]
    return True


def _ended(files: Files, victim: Victim) -> bool:
    for lines in files.values():
        for line in [one for one in lines if one["kind"] == "run"]:
            lines.append(
                {
                    "kind": "end",
                    "schema_version": line["schema_version"],
                    "run_id": line["run_id"],
                    "ended_at": line["started_at"],
                    "reason": "finished",
                    "counts": {},
                }
            )
    return True


def _proof(files: Files, victim: Victim) -> bool:
    """Copy the missing proof from a passing check to a failing one."""
    bad = _bad(files, victim.cell_id)
    for line in bad:
        line |= _NO_FAULT
        line["max_rel_error"] = None
    return bool(bad)


_ALL = (
    Forgery(
        name="outcome_flipped", describe="`failed` becomes `passed`", states=("broken", "fallback"), apply=_outcome
    ),
    Forgery(name="fault_cleared", describe="… and its error isn't told", states=("broken", "fallback"), apply=_proof),
    Forgery(
        name="limit_widened", describe="… and its tolerance is twice its error", states=("broken",), apply=_limit
    ),
    Forgery(
        name="line_rewritten",
        describe="a line that fits in all its figures",
        states=("broken", "fallback"),
        apply=_whole_line,
        needs_skill=True,
    ),
    Forgery(
        name="line_removed", describe="what isn't green has no line", states=("broken", "fallback"), apply=_removed
    ),
    Forgery(
        name="check_unplanned", describe="… and stands in no plan", states=("broken", "killed"), apply=_unplanned
    ),
    Forgery(name="line_added", describe="a second line, which passed", states=("broken",), apply=_added_line),
    Forgery(
        name="run_added",
        describe="passing lines of a run that nobody planned",
        states=("broken", "stale"),
        apply=_added_file,
    ),
    Forgery(
        name="lines_borrowed",
        describe="another cell's lines under this one's name",
        states=("broken",),
        apply=_borrowed,
    ),
    Forgery(
        name="target_renamed",
        describe="what ran on cpu is said to have run on the target",
        states=("fallback",),
        apply=_target,
    ),
    Forgery(
        name="fallback_unsaid", describe="the reason for the fallback is gone", states=("fallback",), apply=_reason
    ),
    Forgery(name="versions_gone", describe="the run names no versions", states=("stale",), apply=_versions),
    Forgery(
        name="versions_renamed",
        describe="the run names today's versions",
        states=("stale",),
        apply=_these_versions,
        needs_skill=True,
    ),
    Forgery(
        name="dated_ahead", describe="lines of the day after tomorrow", states=("broken", "stale"), apply=_dated(2)
    ),
    Forgery(name="dated_today", describe="lines of this moment", states=("stale",), apply=_dated(0)),
    Forgery(
        name="mark_removed",
        describe="the mark of an edited suite is gone",
        states=("edited",),
        apply=_mark,
        needs_skill=True,
    ),
    Forgery(
        name="plan_removed",
        describe="no run line, so no plan and no versions",
        states=("stale", "edited", "killed"),
        apply=_run_line_gone,
    ),
    Forgery(name="end_added", describe="a killed run is said to have ended", states=("killed",), apply=_ended),
)

FORGERIES: Mapping[str, Forgery] = {one.name: one for one in _ALL}
"""All changes, in the order of the table."""
