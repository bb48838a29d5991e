"""Plant faults into the simulated device, and see which of them the probe, suites of operators and suites of models
find."""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from generators.models.recipe_store import stored_recipes
from generators.operators.operator_results import FAULTY
from hardware.evidence.versions import FAULT_VARIABLE
from hardware.files import cache_folder, write_whole
from reports.text import markdown_table

from .. import product

LIST = Path(__file__).with_suffix(".toml")
RESULTS = product.ROOT / "docs" / "evidence" / "operator-faults.jsonl"
_MODELS = ("bert", "llama", "vit", "resnet", "t5")
_MOST_MODELS = 3
_NOT_OF_MODELS = ("swallow", "flush", "saturate", "ids")
"""Kinds that tiny models in normal use don't meet: special and large numbers."""
_LONGEST_S = 900.0


def planted() -> Iterator[tuple[str, str, str]]:
    """Yield each fault as kind, operator and precision."""
    for kind, operators in tomllib.loads(LIST.read_text(encoding="utf-8")).items():
        for text in operators:
            name, _, precision = text.partition(" ")
            yield kind, f"aten.{name}", precision or "float32"


def find_all(*, models: bool) -> None:
    """Plant each fault, and write what found it. What the results have already isn't run again."""
    rows = {(one["kind"], one["operator"]): one for one in read_results()}
    usual = _unusual_answers("")
    for kind, operator, precision in planted():
        row = rows.setdefault((kind, operator), {"kind": kind, "operator": operator, "precision": precision})
        before, fault = dict(row), f"{kind}:{operator}"
        if "suite" not in row:
            row["probe"] = sorted(_unusual_answers(fault) - usual)
            row["suite"] = _found_by_suite(fault, operator, precision)
        names = _models_with(kind, operator)
        if models and names and "tried" not in row:
            row["model"], row["tried"] = row.get("model", ""), names
            for name in names:
                row["model"] = row["model"] or _found_by_model(fault, name, precision)
        if row != before:
            write_whole(RESULTS, "".join(json.dumps(one, sort_keys=True) + "\n" for one in rows.values()))
            click.echo(json.dumps(row))


def read_results() -> list[dict[str, Any]]:
    """Return the rows of the results."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def planted_section() -> list[str]:
    """Return the lines of the page about planted faults."""
    rows = read_results()
    found = [one for one in rows if one["probe"] or one["suite"]]
    of_models = [one for one in rows if "model" in one]
    rows_shown = [
        [
            one["kind"],
            one["operator"],
            one["precision"],
            "; ".join(one["probe"]) or "-",
            one["suite"] or "not found",
            one.get("model") or ("not found" if "model" in one else "-"),
        ]
        for one in rows
    ]
    by_models = sum(bool(one["model"]) for one in of_models)
    return [
        "## Planted faults",
        "",
        f"Of {len(rows)} faults in the simulated device the probe and suites of operators found {len(found)}."
        + (f" Suites of up to three models each found {by_models} of {len(of_models)}." if of_models else ""),
        "",
        markdown_table(["kind", "operator", "precision", "probe", "suite of the operator", "model"], rows_shown),
    ]


def _printed(words: Sequence[str], fault: str) -> Any:
    environment = product.environment(cache_folder("references").parent, {FAULT_VARIABLE: fault} if fault else {})
    done = product.run([sys.executable, "-m", "hwcompat", *words, "--format", "json"], environment, _LONGEST_S)
    return json.loads(done.stdout)


def _unusual_answers(fault: str) -> set[str]:
    answers = _printed(["devices", "probe", "simulated"], fault)["answers"]
    return {f"{one['name']}: {one['value']}" for one in answers if not one["usual"]}


def _found_by_suite(fault: str, operator: str, precision: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        words = ["ops", "simulated", "--operator", operator, "--precision", precision, "--output-dir", folder]
        (result,) = _printed(words, fault)["results"]
    return f"{result['outcome']}: {result['reason'].partition(':')[0]}" if result["outcome"] in FAULTY else ""


def _models_with(kind: str, operator: str) -> list[str]:
    """Return three model types that call the operator; none for a kind that models don't meet."""
    if kind in _NOT_OF_MODELS:
        return []
    recipes = {one.model_type: one for one in stored_recipes()}
    names = dict.fromkeys([*_MODELS, *sorted(recipes)])
    return [name for name in names if operator in recipes[name].operators][:_MOST_MODELS]


def _found_by_model(fault: str, name: str, precision: str) -> str:
    with tempfile.TemporaryDirectory() as work:
        words = ("--precision", precision, "--run", "--force")
        asked = product.command(Path(work), [name], "simulated", *words)
        product.run(
            asked, product.environment(cache_folder("references").parent, {FAULT_VARIABLE: fault}), _LONGEST_S
        )
        verdict = product.verdict(Path(work))
    if verdict is None:
        raise RuntimeError(f"{name} with {fault} has no verdict")
    return "" if verdict["level"] in ("high", "medium") else f"{name}: {verdict['reason'][:80]}"
