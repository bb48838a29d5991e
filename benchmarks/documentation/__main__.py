"""Run the code of pages: `write` updates the output in the pages, `check` reports differences."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from .blocks import Block, Step, blocks_of, difference
from .links import broken_links
from .workspace import ROOT, Workspace

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md")


def pages() -> list[Path]:
    """Return every page of documentation."""
    return [*PAGES, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def ran(page: str) -> Iterator[tuple[Block, Block, str]]:
    """Yield each block before and after its run, and its error or an empty string."""
    with tempfile.TemporaryDirectory(prefix="hwcompat-docs-") as name:
        workspace = Workspace(Path(name))
        for block in blocks_of(page):
            if not block.not_run:
                yield block, *_after(block, workspace)


def _after(block: Block, workspace: Workspace) -> tuple[Block, str]:
    if block.language == "python":
        code, printed = workspace.run_python(block.steps[0].command)
        return block, "" if code == block.exit_code else f"it ends with {code}: {printed[-1:]}"
    steps: list[Step] = []
    wrong: list[str] = []
    for step in block.steps:
        code, printed = workspace.run(step.command)
        last = step is block.steps[-1]
        if code != (block.exit_code if last else 0):
            wrong.append(f"{step.command!r} ends with {code}: {printed[-1:]}")
        else:
            why = difference(step.printed, block.shown(printed))
            wrong += [f"{step.command!r}: {why}"] if why else []
        steps.append(replace(step, printed=block.shown(printed)))
    return replace(block, steps=tuple(steps)), "; ".join(wrong)


@click.group(help=__doc__)
def main() -> None:
    """Run and check documentation."""


_SOME = click.argument("paths", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True))


@main.command()
@_SOME
def write(paths: Sequence[Path]) -> None:
    """Run the pages' code and put what it prints into them: read the diff."""
    for path in paths or pages():
        text = path.read_text(encoding="utf-8")
        after = text
        for block, new, why in reversed(list(ran(text))):
            if why and "ends with" in why:
                raise click.ClickException(f"{path}:{block.line}: {why}")
            after = after[: block.start] + new.text() + after[block.end :]
        if after != text:
            path.write_text(after, encoding="utf-8")
            click.echo(f"{path}: written anew")


@main.command()
@_SOME
def check(paths: Sequence[Path]) -> None:
    """Run the pages' code and say where it fails or prints something else; exit code 1."""
    failed = False
    for path in paths or pages():
        for block, _, why in ran(path.read_text(encoding="utf-8")):
            click.echo(f"{path}:{block.line}: {why or 'as the page says'}")
            failed = failed or bool(why)
    sys.exit(int(failed))


@main.command()
def links() -> None:
    """Say which links of pages lead nowhere; exit code 1."""
    found = list(broken_links(pages(), ROOT))
    for one in found:
        click.echo(f"{one.page}: {one.to}: {one.why}")
    sys.exit(int(bool(found)))


@main.command()
def commands() -> None:
    """Write docs/reference/commands.md."""
    from .commands import commands_page

    (ROOT / "docs" / "reference" / "commands.md").write_text(commands_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
