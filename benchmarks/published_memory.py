"""Print generators/compatibility/published_memory.json: estimates for the models of published results about memory.

`python -m benchmarks.published_memory > generators/compatibility/published_memory.json`
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from generators.recipes.memory.memory_request import memory_of
from hardware.errors import ModelError
from hardware.values import data_file
from hwcompat.plugins.study.fit_scores import Sized, rows_about_memory

SIZES = Path(__file__).with_suffix(".toml")
CONFIGS = Path("test/fixtures/configs")


def config_of(name: str, folder: Path) -> str:
    """Return a folder with the config.json of sizes by their name, or a model type."""
    if (CONFIGS / name).is_dir():
        return str(CONFIGS / name)
    known = data_file(SIZES).get(name)
    if known is None:
        return name
    place = folder / name
    place.mkdir(exist_ok=True)
    sizes = {key: value for key, value in known.items() if key not in ("millions", "source")}
    (place / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    return str(place)


def estimated(one: Sized, folder: Path) -> dict[str, Any]:
    """Return the estimate and the anatomy of a model in one way to run it, or the reason why there is none."""
    asked = {"mode": one.mode, "precision": one.precision, "batch": one.batch, "context": one.length}
    try:
        found = memory_of(config_of(one.sizes, folder), None, asked)
    except ModelError as error:
        if "no text" not in str(error) and "generates no tokens" not in str(error):
            return {"unknown": str(error)}
        found = memory_of(config_of(one.sizes, folder), None, {**asked, "mode": "inference"})
    return {"estimate": found["estimates"][0], "anatomy": found["anatomy"]}


@click.command()
def main() -> None:
    """Print the file."""
    every = {row.sized.key: row.sized for row in rows_about_memory() if row.sized}
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for key, one in sorted(every.items()):
            lines.append(f"{json.dumps(key)}: {json.dumps(estimated(one, Path(folder)))}")
            click.echo(lines[-1][:150], err=True)
    click.echo("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
