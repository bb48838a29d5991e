"""`python -m benchmarks.crashes`: kill real runs, fill disks, crash suites, and check that nothing is lost.

Each case uses its own folder. Violations are printed, and their folders stay. Results are stored in `results.jsonl`
of `--keep`, so that the benchmark resumes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from .deaths import death_cases
from .disks import disk_cases
from .exports import export_cases
from .kills import Undisturbed, kill_cases, undisturbed_run
from .page import page_text
from .result import Case, Kept, keep, read_results
from .running import Place
from .sabotaged import sabotage_cases
from .together import together_cases
from .writers import writer_cases

RESULTS = "results.jsonl"
FOLDER = Path("hwcompat-out/crashes")
PARTS = ("kills", "deaths", "disks", "together", "writers", "exports", "sabotage")


def cases(parts: Sequence[str], kills: int, seed: int) -> Iterator[Case]:
    """Return all cases of some parts."""
    if "kills" in parts:
        yield from kill_cases(kills, seed)
    if "deaths" in parts:
        yield from death_cases()
    if "disks" in parts:
        yield from disk_cases()
    if "together" in parts:
        yield from together_cases(seed)
    if "writers" in parts:
        yield from writer_cases(seed)
    if "exports" in parts:
        yield from export_cases(seed)
    if "sabotage" in parts:
        yield from sabotage_cases()


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these; default: all.")
@click.option("--kills", default=205, show_default=True, type=click.IntRange(min=0))
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--keep", "folder", default=Path("hwcompat-out/crashes"), show_default=True, type=click.Path(path_type=Path)
)
@click.option("--limit-s", default=0.0, help="Begin no case after so many seconds; 0: go on to the end.")
@click.option("--only", help="Only the case of this id, anew.")
@click.option("--page", type=click.Path(path_type=Path), help="Write the table there, as Markdown.")
def main(
    parts: Sequence[str], kills: int, seed: int, folder: Path, limit_s: float, only: str | None, page: Path | None
) -> None:
    """Run the remaining cases and print the table; exit with 1 for violations, 2 if cases are left."""
    started = time.monotonic()
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    known = read_results(folder / RESULTS)
    wanted = [case for case in cases(parts or PARTS, kills, seed) if only in (None, case.id)]
    left = [case for case in wanted if only or case.id not in known]
    undisturbed = None
    for case in left:
        if limit_s and time.monotonic() - started > limit_s:
            break
        if undisturbed is None and case.part != "writers":
            shutil.rmtree(folder / "undisturbed", ignore_errors=True)
            undisturbed = undisturbed_run(Place(folder=folder / "undisturbed"))
        known[case.id] = _tried(case, folder, undisturbed)
        keep(folder / RESULTS, known[case.id])
    found = [known[case.id] for case in wanted if case.id in known]
    text = page_text(found, command=f"python -m benchmarks.crashes --kills {kills} --seed {seed}")
    click.echo(text)
    if page is not None:
        page.write_text(text, encoding="utf-8")
    if any(one.wrong for one in found):
        raise SystemExit(1)
    raise SystemExit(2 if len(found) < len(wanted) else 0)


def _tried(case: Case, folder: Path, undisturbed: Undisturbed) -> Kept:
    own = folder / case.id
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    began = time.monotonic()
    result = case.run(own, undisturbed)
    if not result.wrong:
        shutil.rmtree(own, ignore_errors=True)
    kept = Kept(
        part=case.part,
        id=case.id,
        kind=case.kind,
        date=str(datetime.now(UTC).date()),
        seconds=round(time.monotonic() - began, 1),
        facts=result.facts,
        wrong=list(result.wrong),
    )
    click.echo(f"{case.id} {case.kind}: {'; '.join(kept.wrong) or 'holds'} {kept.facts} ({kept.seconds} s)", err=True)
    return kept


if __name__ == "__main__":
    main()
