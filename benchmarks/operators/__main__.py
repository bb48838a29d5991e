"""Write tables of operators: `python -m benchmarks.operators SOURCE`."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from generators.compatibility.operators.operator_table import OperatorTable, Section, table_of

from .runs import TARGETS
from .writing import with_section, write_table


@click.group()
def main() -> None:
    """Write tables of operators, one source at a time; the sections of others stay."""


@main.command("torch")
def from_torch() -> None:
    """cpu, simulated, cuda, rocm, mps, from the torch that is installed."""
    from .torch_kernels import section

    for target in ("cpu", "simulated", "cuda", "rocm", "mps"):
        keep(target, section(target, today()))


@main.command("xpu")
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--revision", required=True, help="Branch and commit of the checkout.")
def from_xpu(checkout: Path, revision: str) -> None:
    """xpu, from the torch that is installed and a CHECKOUT of torch-xpu-ops of the same release."""
    from .xpu_kernels import xpu_section

    keep("xpu", xpu_section(checkout, revision, today()))


@main.command("tpu")
def from_torchax() -> None:
    """tpu, from torchax in its environment."""
    from .torchax_lowerings import tpu_section

    keep("tpu", tpu_section(today()))


@main.command("web")
@click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))
def from_web(package: Path) -> None:
    """webgpu and webnn, from an unpacked npm PACKAGE of onnxruntime-web."""
    from .web_tables import web_section

    for target in ("webgpu", "webnn"):
        keep(target, web_section(target, package, today()))


@main.command("calls")
def from_models() -> None:
    """How the tiny model of each recipe calls operators: what trials and backlogs show."""
    from .model_calls import record_all

    record_all()


@main.command("variants")
def from_calls() -> None:
    """The calls of operator suites: recorded calls, and the same with other sizes and numbers."""
    from .size_variants import write_variants

    write_variants()


@main.command("breadth")
def from_op_db() -> None:
    """The calls of the second tier of operator suites, from torch's own list of operators (needs expecttest)."""
    from .size_variants import write_breadth

    write_breadth()


@main.command("trial")
@click.argument("what", type=click.Choice(("onnx", "openvino", "qnn")))
def from_trials(what: str) -> None:
    """openvino or qnn, from graphs of one operator; onnx: which ONNX types operators are exported as."""
    from . import trials
    from .trial_tables import section_of, write_exports

    tried = trials.said(trials.try_all(what))
    if what == "onnx":
        write_exports(tried, today())
    else:
        keep(what, section_of(what, tried, today()))


@main.command("runs")
@click.argument("target", type=click.Choice(TARGETS))
def from_runs(target: str) -> None:
    """A target's, from the evidence that is kept in docs/evidence, without the types that are held out."""
    from generators.models.recipe_store import stored_recipes
    from hardware.evidence.shipped_evidence import FOLDER

    from .runs import run_sections, write_graphs

    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    if target == "qnn":
        write_graphs(FOLDER / f"{target}.jsonl.gz", recipes, today())
    for section in run_sections(target, FOLDER / f"{target}.jsonl.gz", recipes, today()):
        keep(target, section)


@main.command("nodes")
@click.argument("target", type=click.Choice(("qnn",)))
def from_exports(target: str) -> None:
    """Dtypes and shapes of the nodes that qnn refuses, from exports of the models that kept evidence names."""
    from generators.models.recipe_store import stored_recipes
    from hardware.evidence.shipped_evidence import FOLDER

    from .exported_nodes import write_nodes

    recipes = {recipe.model_type: recipe for recipe in stored_recipes()}
    write_nodes(target, FOLDER / f"{target}.jsonl.gz", recipes, today())


@main.command("page")
def print_page() -> None:
    """Print docs/measured/operators.md."""
    from generators.models.recipe_store import stored_recipes

    from .page import page

    click.echo(page(stored_recipes()), nl=False)


@main.command("suites")
@click.argument("files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1)
def print_suites(files: tuple[Path, ...]) -> None:
    """Print docs/measured/operator-suites.md. FILES that `hwcompat ops TARGET --format json` and `hwcompat devices
    probe TARGET --format json` printed are kept first."""
    from .suite_page import keep, suite_page

    keep(files)
    click.echo(suite_page(), nl=False)


@main.command("planted")
@click.option("--models", is_flag=True, help="Run a model with each fault too.")
def find_planted(models: bool) -> None:
    """Plant faults into the simulated device, and write docs/evidence/operator-faults.jsonl."""
    from .planted_faults import find_all

    find_all(models=models)


def today() -> str:
    """Return the date of a section."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def keep(target: str, section: Section) -> None:
    """Write a section of a target's table, and print its counts."""
    write_table(with_section(table_of(target) or OperatorTable(target=target, sections=()), section))
    table_of.cache_clear()
    click.echo(f"{target}, {section.kind}: {len(section.supported)} run, {len(section.missing)} don't")


if __name__ == "__main__":
    main()
