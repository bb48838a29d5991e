"""Print docs/measured/backlog.md: the operators that keep model types from working on a target.

`python -m benchmarks.backlog_page > docs/measured/backlog.md` reads the tables of operators, the recipes that ship,
and the evidence in docs/evidence.
"""

from __future__ import annotations

import click

from generators.models.recipe_store import stored_recipes
from hardware.evidence.record import CheckLine
from hardware.evidence.shipped_evidence import read_shipped, shipped_file
from hardware.target import Target
from hwcompat.plugins.study.backlog import backlog
from hwcompat.plugins.study.backlog_command import backlog_markdown

TARGETS = ("qnn", "openvino")

_HEAD = """# Missing operators

{result}

Made by `python -m benchmarks.backlog_page`; each list is what
`hwcompat backlog TARGET --format markdown` prints in a checkout without other evidence.

An operator is *missing* where a table says so of a type that never ran, or of one whose failure names no operator;
*failing* where a failed check names it; *offloaded* where it ran on the host, or a strict session refused to let it.
A type counts as *unlocked* where nothing else is known to stand in its way: behind one obstacle there may be others,
and a graph of one operator says nothing of how a compiler joins it with its neighbours. What computes with whole
numbers that don't depend on a model's inputs is folded when a model is exported, and may be no obstacle there. Shapes
are those of tiny models; `--dims real` adds those at the size of a type's defaults.
"""


@click.command()
def main() -> None:
    """Print the page."""
    recipes = stored_recipes()
    parts, results = [""], []
    for name in TARGETS:
        target = Target(name=name)
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
