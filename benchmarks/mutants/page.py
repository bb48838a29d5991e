"""`python -m benchmarks.mutants.page FILE...`: make docs/measured/mutants.md from the files of the benchmarks."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import click
from tabulate import tabulate

from hardware.command_line import run_command_line

from .results import KILLED, UNFIT, Outcome, read

_HERE = Path(__file__).resolve().parent
_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
_BENCHES = (
    ("models", "the model under test, where its outputs depend on it", "the checks of its suite", "`make mutants`"),
    (
        "deceits",
        "a reference, suite, runner, export or detector, mostly along with the model",
        "a run of the main job",
        "`make mutants-deceits`",
    ),
    ("forgeries", "evidence, changed by hand or out of date", "the verdict of its cell", "`make mutants-forgeries`"),
    ("code", "our own code, one small fault each, at sites drawn by seed", "our tests", "`make mutants-code`"),
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False, exists=True))
def main(files: tuple[Path, ...]) -> int:
    """Write the page to standard output."""
    click.echo(page(read(files)), nl=False)
    return 0


def page(found: Sequence[Outcome]) -> str:
    """Return the page as Markdown: rates by benchmark, side, operator and detector, then all survivors with the
    reason."""
    mutants = [one for one in found if not one.is_clean_run]
    clean = [one for one in found if one.is_clean_run]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "openvino"))
    alarms = [one for one in clean if one.status != "clean"]
    parts = [
        _HEAD.format(
            rate=_rate(mutants),
            alarms=len(alarms),
            clean=len(clean),
            date=datetime.now(UTC).date(),
            versions=versions,
            benches=tabulate(_BENCHES, headers=("bench", "breaks", "asks", "command"), tablefmt="github"),
        ),
        _table("By bench", ("bench",), mutants, lambda one: (one.bench,)),
        _table("By side of the fault", ("side", "bench"), mutants, lambda one: (one.side, one.bench)),
        _table("By operator", ("bench", "operator"), mutants, lambda one: (one.bench, one.operator)),
        _killers(mutants),
        _survivors(mutants),
    ]
    return "".join(parts)


def _rate(mutants: Sequence[Outcome]) -> str:
    killed = sum(one.status in KILLED for one in mutants)
    return f"{killed} of {len(mutants)} ({killed / max(len(mutants), 1):.1%})"


def _table(
    title: str, names: Sequence[str], mutants: Iterable[Outcome], key: Callable[[Outcome], tuple[str, ...]]
) -> str:
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for one in mutants:
        groups.setdefault(key(one), []).append(one)
    rows = []
    for group, members in groups.items():
        counts = Counter(one.status for one in members)
        killed = sum(counts[status] for status in KILLED)
        unfit = ", ".join(f"{counts[status]} {status}" for status in UNFIT if counts[status])
        rows.append((*group, len(members), killed, counts["survived"], unfit, f"{killed / len(members):.0%}"))
    headers = (*names, "mutants", "killed", "survived", "else", "rate")
    return f"## {title}\n\n{tabulate(rows, headers=headers, tablefmt='github')}\n\n"


def _killers(mutants: Iterable[Outcome]) -> str:
    """Count mutants by the check, verdict or test file that detected them."""
    counts: Counter[tuple[str, str]] = Counter(
        (one.bench, one.by.partition("::")[0] or one.status) for one in mutants if one.status in KILLED
    )
    rows = [
        (bench, by, number) for (bench, by), number in sorted(counts.items(), key=lambda pair: (pair[0][0], -pair[1]))
    ]
    return f"## By what detected them\n\n{tabulate(rows, headers=('bench', 'by', 'mutants'), tablefmt='github')}\n\n"


def _survivors(mutants: Iterable[Outcome]) -> str:
    with (_HERE / "survivors.toml").open("rb") as file:
        reasons: dict[str, str] = tomllib.load(file)
    rows = [
        (
            one.bench,
            one.operator,
            f"{one.why}: {one.site}" if one.bench == "code" else one.site,
            one.status,
            _reason(one, reasons),
        )
        for one in mutants
        if one.status not in KILLED
    ]
    if not rows:
        return "## Survivors\n\nNone.\n"
    headers = ("bench", "operator", "site", "", "reason")
    return f"## Survivors\n\n{tabulate(rows, headers=headers, tablefmt='github')}\n"


def _reason(one: Outcome, reasons: dict[str, str]) -> str:
    return reasons.get(one.why if one.bench == "code" else f"{one.bench}.{one.operator}", "not looked into")


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.mutants.page"))
