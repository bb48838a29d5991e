"""A mesh as text for a terminal: the plan, what each rank held and said, the checks, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardware.plain_text import columns, folded, printable, size_text
from hwcompat.plugins.placement.mesh.result import CHECKS, HEARD

Report = Mapping[str, Any]


def mesh_text(report: Report) -> str:
    """All of a report; it ends in a newline."""
    lines = [*_plan_lines(report), *_case_lines(report)]
    lines += folded("Verdict: ", _verdict(report))
    return "\n".join(lines) + "\n"


def plan_text(figures: Report, whose: str, plan: Report | None, refused: str = "") -> str:
    """A plan alone, as `ModelFigures.to_dict` and `MeshPlan.to_dict` give it; it ends in a newline."""
    told = {"figures": figures, "whose": whose, "plan": plan, "refused": refused, "model": figures["name"]}
    return "\n".join(_plan_lines(told)).rstrip() + "\n"


def _plan_lines(report: Report) -> list[str]:
    figures, plan = report["figures"], report["plan"]
    lines = []
    if figures:
        size = size_text(sum(figures["layers"]) + figures["before"] + figures["after"])
        said = f"{figures['parameters']:,} parameters, {size} in {figures['dtype']} ({report['whose']})"
        lines += folded(f"Plan of {printable(report['model'])}: ", said)
    if report["refused"]:
        return [*lines, *folded("  refused: ", report["refused"]), ""]
    if plan:
        lines += [*_ranks_of_plan(plan), *_groups_of_plan(plan)]
        lines += [line for one in plan["reasons"] for line in folded("  - ", one)]
        lines += [line for one in plan["left_out"] for line in folded("  - left out: ", one)]
        lines += [line for one in plan["rejected"] for line in folded("  - not taken: ", one)]
    return [*lines, ""]


def _ranks_of_plan(plan: Report) -> list[str]:
    rows = []
    for one in plan["ranks"]:
        first, stop = one["layers"]
        layers = f"{first}-{stop - 1}" if stop - first > 1 else str(first)
        extra = [" + embeddings"] * one["holds_embeddings"] + [" + head"] * one["holds_head"]
        room = "not known" if one["room_bytes"] is None else size_text(one["room_bytes"])
        place = f"{one['pipeline']}/{one['data']}/{one['tensor']}"
        held = size_text(one["parameter_bytes"])
        rows.append((str(one["rank"]), one["device"], place, held, room, f"{layers}{''.join(extra)}"))
    headings = ("rank", "device", "stage/copy/part", "holds", "room", "layers")
    return columns(headings, rows, right=(0, 3, 4))


def _groups_of_plan(plan: Report) -> list[str]:
    lines = []
    for one in plan["groups"]:
        ranks = ", ".join(map(str, one["ranks"]))
        lines += folded("  ", f"{one['axis']} of ranks {ranks}: {one['backend']} ({one['why']})", indent=4)
    return lines


def _case_lines(report: Report) -> list[str]:
    checked = report["checked"]
    if report["broken"]:
        return [*folded("Check: ", report["broken"]), ""]
    if not checked:
        return []
    made = f"{checked['model_class']} of {size_text(checked['parameter_bytes'])} in float32"
    lines = folded("Check: ", f"{report['split']} of a tiny {made}, loud random weights. {report['remark']}")
    for case in report["cases"]:
        lines += [*_rank_lines(case), "", *_check_lines(case), ""]
    return lines


def _rank_lines(case: Report) -> list[str]:
    whole = case["whole_bytes"]
    lines = []
    for one in case["ranks"]:
        share = f"{size_text(one['bytes'])} of {size_text(whole)} ({100 * one['bytes'] / max(1, whole):.0f} %)"
        held = f"holds {share}, {one['parameters']} parameters, {one['parts']} of them parts"
        lines += folded(f"  rank {one['rank']} on {one['device']} ", f"{held}; {_calls(one)}", indent=4)
    examples = next((one["examples"] for one in case["ranks"] if one["examples"]), ())
    return [*lines, *(line for one in examples[:2] for line in folded("    such as ", one))]


def _calls(rank: Report) -> str:
    told = [f"{_counted(rank['forward'])} forward"]
    if rank["backward"]:
        told.append(f"{_counted(rank['backward'])} backward")
    return "; ".join(told)


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in calls.items()) or "nothing said"


def _check_lines(case: Report) -> list[str]:
    rows: list[Sequence[str]] = []
    for one in case["checks"]:
        error = "" if one["error"] is None else f"{one['error']:.2e}"
        sign = "more than" if one["name"] == HEARD else "at most"
        limit = "" if one["tolerance"] is None else f"{sign} {one['tolerance']:.0e}"
        rows.append(
            ("passed" if one["passed"] else "FAILED", one["name"], error, limit, one["detail"] or CHECKS[one["name"]])
        )
    return columns(("", "check", "measured", "limit", ""), rows, right=(2,))


def _verdict(report: Report) -> str:
    if report["broken"]:
        return f"{report['split']} isn't proven: the ranks came to no end"
    if report["passed"] is None and report["plan"]:
        return "it fits one device: there is nothing to split, and nothing was checked"
    if report["passed"] is None:
        return "it fits no mesh of the devices that are here, and nothing was checked"
    names = [one["name"] for case in report["cases"] for one in case["checks"] if not one["passed"]]
    if names:
        return f"{report['split']} gives something else than one device: {', '.join(names)} failed"
    fits = " It was planned at real size, too" if report["plan"] else " At real size it doesn't fit these devices"
    if not report["plan"] and not report["figures"]:
        fits = " Its real size isn't known"
    return f"{report['split']} gives what one device gives, and every rank had its part in it.{fits}."
