"""`python -m benchmarks.mutants.deceits`: verdicts of adversarial real runs."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from hardware.command_line import run_command_line

from ... import product

HERE = Path(__file__).resolve().parent
MODELS = ("bert", "gpt2", "vit", "resnet", "t5", "whisper")
SITES, SEED, JOBS = 3, 10, 2
_LONGEST_S = 400.0


@dataclass(frozen=True, kw_only=True)
class Deceit:
    """An adversarial run of one model type."""

    name: str
    side: str
    model: str
    target: str = "cpu"
    broken_model: bool = True

    @property
    def plants(self) -> str:
        """The plants: the deceit, and a broken model if it hides one."""
        return f"{self.name}+broken_model" if self.broken_model else self.name


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run; a deceit without effect isn't killed."""

    deceit: Deceit
    took_effect: bool
    level: str
    basis: str
    reason: str
    seconds: float

    @property
    def status(self) -> str:
        """`killed`, `survived` if the cell is reported as working here, or `no effect`."""
        if not self.took_effect:
            return "no effect"
        return "survived" if self.level in ("high", "medium") and self.basis == "measured" else "killed"


def deceits() -> list[Deceit]:
    """Return all adversarial runs, each for its model types."""
    with (HERE / "deceits.toml").open("rb") as file:
        entries: dict[str, dict[str, Any]] = tomllib.load(file)
    found = []
    for name, entry in entries.items():
        more = {field: entry[field] for field in ("target", "broken_model") if field in entry}
        models = random.Random(f"{SEED}/{name}").sample(MODELS, SITES)
        found += [Deceit(name=name, side=entry["side"], model=model, **more) for model in models]
    return found


def run(deceit: Deceit, folder: Path) -> Result:
    """Run the main job with the planted deceit, with all output below `folder`."""
    own = folder / f"{deceit.name}-{deceit.model}"
    own.mkdir(parents=True)
    mark = own / "took_effect"
    started = time.monotonic()
    ran = product.run(
        product.command(own, [deceit.model], deceit.target, "--run"),
        product.planted(product.environment(own / "cache"), deceit.plants, mark, HERE / "planting"),
        _LONGEST_S,
    )
    (own / "out").write_text(ran.stdout + ran.stderr, encoding="utf-8")
    verdict = product.verdict(own) or {"level": "no verdict", "basis": "", "reason": ""}
    return Result(
        deceit=deceit,
        took_effect=mark.exists(),
        level=verdict["level"],
        basis=verdict["basis"],
        reason=verdict["reason"] or ran.stderr.strip()[-200:],
        seconds=round(time.monotonic() - started, 1),
    )


def _all(chosen: Sequence[Deceit], folder: Path) -> Iterator[Result]:
    with ThreadPoolExecutor(JOBS) as pool:
        yield from pool.map(lambda one: run(one, folder), chosen)


@click.command()
@click.option("--name", "names", multiple=True, help="Only these; may be repeated.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write one line of JSON for each here.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder in which everything stays.")
def main(names: tuple[str, ...], out: Path | None, keep: Path | None) -> int:
    """Plant every deceit; exit with 1 if a cell is reported as working, or if a deceit had no effect."""
    chosen = [one for one in deceits() if not names or one.name in names]
    results = []
    with tempfile.TemporaryDirectory(prefix="hwcompat-deceits-") as temporary:
        for result in _all(chosen, (keep or Path(temporary)).resolve()):
            results.append(result)
            one = result.deceit
            verdict = f"{result.level} {result.basis}: {result.reason[:120]}"
            click.echo(f"{result.status}: {one.name} {one.model}/{one.target} {verdict}")
    killed = sum(result.status == "killed" for result in results)
    click.echo(f"{killed} of {len(results)} are killed")
    if out is not None:
        rows = [
            {**asdict(one.deceit), **asdict(one), "deceit": one.deceit.name, "status": one.status} for one in results
        ]
        out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.mutants.deceits"))
