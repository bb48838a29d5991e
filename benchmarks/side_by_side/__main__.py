"""`python -m benchmarks.side_by_side run`: compare with other tools; `page` writes docs/measured/benchmarks.md."""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from hardware.detection import detect
from hardware.software import package_versions

from .page import page, read_scripts
from .processes import ROOT
from .result import keep_results, read_results

BENCHES = ("starts", "inventory", "doctors", "generation", "first_verdict", "checks", "memory", "queries", "speed")
KEPT = ROOT / "docs" / "evidence" / "benchmarks.jsonl"
_VERSIONS = ("torch", "transformers", "duckdb", "pandas", "accelerate")


@click.group(help=__doc__)
def main() -> None:
    """Compare with other tools."""


@main.command()
@click.argument("names", nargs=-1, type=click.Choice(BENCHES))
@click.option("--runs", type=click.IntRange(min=1), default=7, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=KEPT)
def run(names: tuple[str, ...], runs: int, out: Path) -> None:
    """Run some benchmarks, or all; each result is stored when it is complete."""
    inventory = detect()
    memory = (inventory.memory.total_bytes or 0) / 2**30
    machine = f"{inventory.cpu.model}, {inventory.cpu.usable_threads} threads, {memory:.0f} GiB"
    versions = {name: version for name, version in package_versions(_VERSIONS).items() if version}
    for name in names or BENCHES:
        click.echo(f"{name} …", err=True)
        found = importlib.import_module(f"benchmarks.side_by_side.{name}").measure(runs)
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        result = replace(found, bench=name, date=today, machine=machine, versions=versions)
        keep_results(out, [result])
        for one in result.comparisons:
            ratio = f"{one.ratio:.3g}" if one.ratio is not None else f"not measured: {one.missing}"
            click.echo(f"{one.what}: {one.ours} to {one.rival}: {ratio}")


@main.command("page")
@click.option("--kept", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=KEPT)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=ROOT / "docs/measured/benchmarks.md")
def write_page(kept: Path, out: Path) -> None:
    """Write docs/measured/benchmarks.md."""
    results = read_results(kept)
    ordered = {name: results[name] for name in BENCHES if name in results}
    out.write_text(page(ordered, read_scripts()), encoding="utf-8")


if __name__ == "__main__":
    main()
