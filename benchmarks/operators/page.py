"""Make docs/measured/operators.md: the content of each table for operators of recipes, and its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from generators.compatibility.operators import Section, coverage, known_tables, table_of
from generators.models.recipe import Recipe
from hardware.target import Target

_HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def page(recipes: Sequence[Recipe]) -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD.format(result=_result(recipes)), *_counts(recipes), *_sources()]) + "\n"


def _result(recipes: Sequence[Recipe]) -> str:
    operators = sorted({name for recipe in recipes for name in recipe.operators})
    lacking = {name: len(coverage(Target(name=name), operators).missing) for name in known_tables()}
    listed = ", ".join(f"{name} lacks {count}" for name, count in lacking.items() if count)
    return f"Of {len(operators)} operators that {len(recipes)} recipes use, {listed}."


def _counts(recipes: Sequence[Recipe]) -> Iterator[str]:
    operators = sorted({name for recipe in recipes for name in recipe.operators})
    yield f"\n## The {len(operators)} operators of {len(recipes)} recipes\n"
    yield "| target | has | lacks | unknown | types without a gap | types with a gap | most types lack |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for name in known_tables():
        target = Target(name=name)
        found = coverage(target, operators)
        known = [coverage(target, recipe.operators) for recipe in recipes]
        lacking = sum(bool(one.missing) for one in known)
        whole = sum(one.is_known and not one.missing for one in known)
        counts = {op: sum(op in one.missing for one in known) for op in found.missing}
        most = sorted(counts, key=lambda op: (-counts[op], op))[:5]
        listed = ", ".join(f"{op} ({counts[op]})" for op in most) or "-"
        yield (
            f"| {name} | {len(found.supported)} | {len(found.missing)} | {len(found.unknown)} | {whole} | {lacking} "
            f"| {listed} |"
        )


def _sources() -> Iterator[str]:
    yield "\n## Sources\n"
    yield "| target | basis | names | runs | doesn't run | source | versions | date |"
    yield "|---|---|---|---:|---:|---|---|---|"
    for name in known_tables():
        table = table_of(name)
        for one in table.sections if table else ():
            yield _source(name, one)


def _source(name: str, one: Section) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in one.versions.items())
    return (
        f"| {name} | {one.kind} | {one.names} | {len(one.supported)} | {len(one.missing)} | {one.source} "
        f"| {versions} | {one.made_on} |"
    )
