"""Compare listing a machine with other tools, and list the fields of `warpt list` that we don't show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping

from .processes import ROOT, in_turns, wall_time
from .result import Comparison, Result
from .rivals import Rival, rival, tried

OURS = (sys.executable, "-m", "hardware", "list", "--all")

FIELDS: Mapping[tuple[str, str], str] = {
    ("CPU", "Total Sockets"): "Sockets",
    ("CPU", "Total Phys Cores"): "Physical cores",
    ("CPU", "Total Logic Cores"): "Logical cores",
    ("CPU", "Single-Core Boost"): "Boost frequency",
    ("Memory", "Free"): "Available",
    ("Storage", "Interface"): "Bus",
    ("ML Frameworks", "Pytorch"): "torch",
    ("Docker", "Installed"): "Docker",
}
"""Our labels for fields of `warpt list` by section, if they differ."""

SECTIONS: Mapping[str, str] = {"ML Frameworks": "Software", "Core Libraries": "Libraries", "Docker": "Containers"}
"""Our sections, if they differ."""

NO_FIELDS = ("GPU detection failed",)
"""Error messages that look like fields."""


def measure(runs: int) -> Result:
    """Measure a cold `python -m hardware list` and three other tools in turns."""
    rivals = {
        "warpt list": rival("warpt", "warpt", "list"),
        "torch.utils.collect_env": tried((sys.executable, "-m", "torch.utils.collect_env")),
        # The code of `transformers env`, whose entry point first imports a server with further dependencies.
        "transformers env": tried((sys.executable, "-c", "from transformers.cli.system import env; env()")),
    }
    name = "python -m hardware list"
    commands = {name: OURS, **{key: one.command for key, one in rivals.items() if not one.missing}}
    taken = in_turns({key: _timing(command) for key, command in commands.items()}, runs)
    comparisons = tuple(
        Comparison(
            what="what a machine has, listed by a process started anew",
            ours=name,
            rival=key,
            unit="s",
            ours_values=taken[name],
            rival_values=taken.get(key, ()),
            missing=one.missing,
            note="imports torch" if key != "warpt list" else "",
        )
        for key, one in rivals.items()
    )
    return Result(title="What a machine has", comparisons=comparisons, remarks=_fields(rivals["warpt list"]))


def _timing(command: tuple[str, ...]) -> Callable[[], float]:
    return lambda: wall_time(command)


def fields_of(text: str) -> list[tuple[str, str]]:
    """Return section and label of each line `  Label: value` below a line of dashes, in order.

    A row may list several missing packages: each is a field whose value is the row's label.
    """
    text = re.sub(r"(?<=\n)  Not installed:(.*(?:\n {6,}.*)*)", _one_by_one, text)
    found: list[tuple[str, str]] = []
    section = before = ""
    for line in text.splitlines():
        if re.fullmatch(r"-{3,}", line.strip()):
            section = before.strip()
        elif match := re.match(r"^\s+([A-Za-z][^:]*?):\s", f"{line} "):
            found.append((section, match[1].strip()))
        before = line
    return list(dict.fromkeys(found))


def _one_by_one(row: re.Match[str]) -> str:
    return "\n".join(f"  {name.strip()}: not installed" for name in row[1].split(","))


def _fields(warpt: Rival) -> tuple[str, ...]:
    if warpt.missing:
        return ()
    theirs, ours = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for command in (warpt.command, OURS)
    )
    wanted = [field for field in fields_of(theirs) if field[1] not in NO_FIELDS]
    shown = {(section.lower(), label.lower()) for section, label in fields_of(ours)}
    missing = [field for field in wanted if _ours(*field) not in shown]
    remarks = [
        f"Of {len(wanted)} fields of `warpt list` {len(wanted) - len(missing)} are shown, of {len(shown)} of ours."
    ]
    remarks += [f"Not shown: {section}: {label}." for section, label in missing]
    return tuple(remarks)


def _ours(section: str, label: str) -> tuple[str, str]:
    return SECTIONS.get(section, section).lower(), FIELDS.get((section, label), label).lower()
