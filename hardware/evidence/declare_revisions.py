"""The command `python -m hardware.evidence.revisions`: find changed parts, and declare what changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from ..files import write_whole
from ..process import run
from .revisions import REVISIONS, ROOT, RevisionPart, load_revisions, part_fingerprints

ALL = "all"
VERIFICATION = (
    ("test/recorded", ("-m", "pytest", "test/recorded", "-q")),
    ("the mutants of the checks", ("-m", "benchmarks.mutants")),
)
"""What has to pass before `same` is accepted: suites keep their text, and checks still find faults."""

_COMMAND = "python -m hardware.evidence.revisions"


def changed_parts() -> tuple[str, ...]:
    """Return the parts whose files have a fingerprint that isn't declared for their revision."""
    here = part_fingerprints()
    return tuple(
        part.name
        for part in load_revisions().parts
        if part.name in here and not part.declares(here[part.name], part.revision)
    )


def declared(text: str, part: RevisionPart, fingerprint: str, *, revision: int, decision: str, reason: str) -> str:
    """Return the text of `revisions.toml` with one more fingerprint of a part, and its revision.

    Everything else stays unchanged.
    """
    lines = text.split("\n")
    start = lines.index(f'name = "{part.name}"')
    end = lines.index("]", lines.index("fingerprints = [", start))
    entry = {"fingerprint": fingerprint, "revision": revision, "decision": decision, "reason": reason}
    fields = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items())
    lines.insert(end, f"    {{ {fields} }},")
    at = next(at for at in range(start, end) if lines[at].startswith("revision = "))
    lines[at] = f"revision = {revision}"
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    cli(prog_name=_COMMAND)


@click.group()
def cli() -> None:
    """Declare revisions of the checking code."""


@cli.command()
def check() -> None:
    """Report parts of the checking code that changed and weren't declared."""
    changed = changed_parts()
    for name in changed:
        click.echo(f"{name}: its files changed since their last declaration", err=True)
    if changed:
        names = " ".join(map(_quoted, changed))
        click.echo(f"Decides as before?    {_COMMAND} same {names} --reason TEXT", err=True)
        click.echo(f"Decides differently?  {_COMMAND} bump {names} --reason TEXT", err=True)
        raise SystemExit(1)
    click.echo(f"All {len(load_revisions().parts)} parts are declared.")


@cli.command()
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@click.option("--reason", required=True, help="Say what changed.")
@click.option("--verified", default="", metavar="TEXT", help="Say what you ran instead of the verification.")
def same(parts: Sequence[str], reason: str, verified: str) -> None:
    """Declare that changed parts decide as before: evidence keeps counting.

    Runs the golden suites and the mutants of the checks first, and refuses where one of them fails.
    """
    wanted = _wanted(parts)
    if not verified and any(part.fingerprints for part in wanted):
        for name, command in VERIFICATION:
            click.echo(f"Running {name}: python {' '.join(command)}", err=True)
            if run([sys.executable, *command], limit_s=None, cwd=ROOT, stdout=None, stderr=None).returncode:
                raise click.ClickException(f"{name} failed: these parts decide differently. Fix them, or run bump.")
        verified = " and ".join(name for name, _ in VERIFICATION)
    _declare(wanted, bump=False, reason=f"{reason} (verified: {verified})" if verified else reason)


@cli.command()
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@click.option("--reason", required=True, help="Say what is decided differently.")
def bump(parts: Sequence[str], reason: str) -> None:
    """Raise the revision of parts that decide differently: evidence that rests on them expires."""
    _declare(_wanted(parts), bump=True, reason=reason)


def _wanted(names: Sequence[str]) -> list[RevisionPart]:
    known = {part.name: part for part in load_revisions().parts}
    if unknown := [name for name in names if name not in known and name != ALL]:
        raise click.UsageError(f"unknown part {unknown[0]!r}. Known: {', '.join(known)}, {ALL}.")
    return [known[name] for name in (changed_parts() if ALL in names else dict.fromkeys(names))]


def _declare(parts: Sequence[RevisionPart], *, bump: bool, reason: str) -> None:
    here = part_fingerprints()
    text = REVISIONS.read_text(encoding="utf-8")
    for part in parts:
        first = not part.fingerprints
        raised = bump and not first
        revision = part.revision + 1 if raised else part.revision
        if part.declares(here[part.name], revision):
            click.echo(f"{part.name}: nothing changed")
            continue
        decision = "first" if first else "bumped" if raised else "same behavior"
        text = declared(text, part, here[part.name], revision=revision, decision=decision, reason=reason)
        click.echo(f"{part.name}: revision {revision}, {decision}")
    _write(text)


def _write(text: str) -> None:
    write_whole(REVISIONS, text)
    load_revisions.cache_clear()


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name
