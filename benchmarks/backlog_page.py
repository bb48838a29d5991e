"""Print docs/measured/backlog.md: the operators that keep model types from working on a target.

`python -m benchmarks.backlog_page > docs/measured/backlog.md` reads the tables of operators, the recipes that ship,
and the evidence in docs/evidence.
"""

from __future__ import annotations

from pathlib import Path

import click

from generators.models.recipe_store import stored_recipes
from hardware.evidence.record import CheckLine
from hardware.evidence.shipped_evidence import read_shipped, shipped_file
from hardware.target import Target
from hwcompat.plugins.study.backlog import backlog
from hwcompat.plugins.study.backlog_command import backlog_markdown

TARGETS = ("qnn:emulator", "openvino")

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


@click.command()
def main() -> None:
    """Print the page."""
    recipes = stored_recipes()
    parts, results = [""], []
    for name in TARGETS:
        target = Target.parse(name)
        file = shipped_file(target)
        checks = [line for line in read_shipped(file) if isinstance(line, CheckLine)] if file else []
        evidence = f"docs/evidence/{file.name}" if file else ""
        found = backlog(target, recipes, checks, evidence=evidence)
        first = found.items[0]
        results.append(f"`{first.operator}` unlocks most model types on {name} ({len(first.unlocks)}).")
        parts.append(backlog_markdown(found, level=2))
    parts[0] = _HEAD.format(result=" ".join(results))
    click.echo("\n".join(parts), nl=False)


if __name__ == "__main__":
    main()
