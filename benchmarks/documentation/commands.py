"""Make docs/reference/commands.md: the help of every command, as tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from hardware.command_names import PROGRAM, program_command
from hwcompat.cli.main_program import program
from reports.text import markdown, markdown_table

_HEAD = """# Commands

`hwcompat COMMAND --help` prints the same on the terminal. Every command also has `--quiet`, `--debug` and `--help`.

Made by `python -m benchmarks.documentation commands`.

Exit codes: 0 clean, 1 findings or failed checks, 2 interrupted, 3 internal error, 4 usage, 5 nothing matched.
"""
_EVERYWHERE = ("quiet", "debug")


def commands_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_sections(program, click.Context(program, info_name=PROGRAM))])


def _sections(group: click.Group, above: click.Context) -> Iterator[str]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=above)
        yield f"## {context.command_path.removeprefix(f'{PROGRAM} ')}\n"
        if isinstance(command, click.Group):
            yield from _sections(command, context)
            continue
        help_text = inspect.cleandoc(command.help or "").replace("\b\n", "").replace(program_command(), PROGRAM)
        said, _, examples = help_text.partition("Examples:\n")
        yield f"{markdown(' '.join(said.split()))}\n"
        lines = [command.get_usage(context).removeprefix("Usage: "), *map(str.strip, examples.splitlines())]
        code = "\n".join(" ".join(line.split()) for line in lines).replace("python -m hardware", f"{PROGRAM} devices")
        yield f"```\n{code.strip()}\n```\n"
        rows = [
            [f"`{', '.join((*one.opts, *one.secondary_opts))}`", markdown(_help(one))]
            for one in command.params
            if isinstance(one, click.Option) and not one.hidden and one.name not in _EVERYWHERE
        ]
        yield markdown_table(["option", "what it does"], rows) + "\n" if rows else ""


def _help(option: click.Option) -> str:
    choices = f"One of: {', '.join(map(str, option.type.choices))}." if isinstance(option.type, click.Choice) else ""
    return " ".join(filter(None, (option.help, choices)))
