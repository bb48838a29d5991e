"""Render a suite: a pure function from recipe, cell and rules to text, independent of clock, host and paths.

Every value in the text goes through a filter that makes it code (`literal`, `identifier`, `number`) or docstring text
(`doc`); a value without a filter is an error, so a model's name can't become code.
"""

from __future__ import annotations

import functools
import keyword
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from hwcompat.generators.models.given_recipe import GivenInput, GivenRecipe, factory_parts
from hwcompat.generators.models.inputs import covered_by, other_draws, placeholders
from hwcompat.generators.models.recipe import HERE, KEPT, Recipe
from hwcompat.hardware.backends.factory import backend_class
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.evidence.revisions import suite_revisions
from hwcompat.hardware.files import PRODUCT
from hwcompat.hardware.testing.checks import Check, applicable_checks
from hwcompat.hardware.testing.suite_file import stamp
from hwcompat.hardware.testing.tolerances import OwnTolerance

from .render_command import command_for, sizes
from .user_templates import FolderAlone, OwnTemplates, rendered_in_child

_WIDTH = 88
TEMPLATES = PRODUCT / "templates"
"""The folder of the product's templates."""


class _Code(str):
    """Text that a filter has made safe for Python source."""

    __slots__ = ()


def _finalize(value: Any) -> Any:
    if isinstance(value, _Code):
        return value
    raise jinja2.TemplateRuntimeError(f"{value!r} is in a template without a filter")


def _literal(value: Any, indent: int = 0) -> _Code:
    """Return a Python literal formatted as a formatter would: a mapping with one entry per line."""
    if isinstance(value, Mapping):
        if not value:
            return _Code("{}")
        inside = " " * (indent + 4)
        entries = [f"{inside}{_literal(k)}: {_literal(v, indent + 4)},\n" for k, v in value.items()]
        return _Code("{\n" + "".join(entries) + " " * indent + "}")
    if isinstance(value, tuple):
        inner = ", ".join(_literal(item) for item in value)
        return _Code(f"({inner},)" if len(value) == 1 else f"({inner})")
    if isinstance(value, list):
        return _list(value, indent)
    if isinstance(value, str):
        return _Code(_double_quoted(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{value} can't be written into Python source", why="it has no Python literal")
    if value is None or isinstance(value, bool | int | float):
        return _Code(repr(value))
    # Printing an undefined variable raises, with its name.
    raise jinja2.TemplateRuntimeError(f"{value} is a {type(value).__name__}, which has no literal")


def _list(value: Sequence[Any], indent: int) -> _Code:
    flat = "[" + ", ".join(_literal(item) for item in value) + "]"
    if len(flat) + indent < _WIDTH // 2 and "\n" not in flat:
        return _Code(flat)
    inside = " " * (indent + 4)
    return _Code("[\n" + "".join(f"{inside}{_literal(v, indent + 4)},\n" for v in value) + " " * indent + "]")


def _double_quoted(text: str) -> str:
    quoted = repr(text)
    if quoted.startswith("'") and '"' not in text:
        return '"' + quoted[1:-1].replace("\\'", "'") + '"'
    return quoted


def _names(value: Sequence[str], indent: int) -> _Code:
    """Return a tuple of names as a keyword argument at `indent`: on one line, or one per line if it is too long."""
    flat = _literal(tuple(value))
    if len(flat) < _WIDTH // 2:
        return flat
    inside = " " * (indent + 4)
    return _Code("(\n" + "".join(f"{inside}{_literal(one)},\n" for one in value) + " " * indent + ")")


def _inline(value: Mapping[str, str]) -> _Code:
    return _Code("{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}")


def _identifier(value: str) -> _Code:
    if not (value.isascii() and value.isidentifier()) or keyword.iskeyword(value):
        raise UsageError(f"{echo(value)} can't be written into Python source", why="it isn't an identifier")
    return _Code(value)


def _doc(value: str) -> _Code:
    """Return text for a docstring or comment: printable, in one line, unable to end it."""
    if not value.isprintable():
        value = ascii(value)[1:-1]
    return _Code(value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"'))


def _dotted(value: str) -> _Code:
    """Return `package.module`, each part of it an identifier."""
    return _Code(".".join(_identifier(part) for part in value.split(".")))


def _keywords(value: Mapping[str, Any]) -> _Code:
    """Return `one=1, two=2`, the arguments of a call."""
    return _Code(", ".join(f"{_identifier(key)}={_literal(one)}" for key, one in value.items()))


def _draw(one: GivenInput, name: str = "") -> _Code:
    """Return the expression that draws one input of a user's module or graph, or that takes it from the example."""
    if one.kind == "given":
        return _Code(f"example()[{_literal(name)}]")
    of, *sizes = [_identifier(size) if isinstance(size, str) else _literal(size) for size in (one.of, *one.shape)]
    shape = f"({', '.join(sizes)},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
    low, high = _literal(one.low), _literal(one.high)
    if one.kind == "booleans":
        return _Code(f"random.random({shape}) < 0.5")
    if one.kind == "lengths":
        return _Code(f"np.full({shape}, {of}, dtype=np.{_identifier(one.dtype)})")
    if one.kind in ("page", "tones"):
        limits = f"{low}, {high}, " if one.kind == "page" else ""
        return _Code(f"{one.kind}(random, {limits}{shape}).astype(np.{_identifier(one.dtype)})")
    drawn = {"integers": "integers", "uniform": "uniform", "normal": "normal"}[one.kind]
    native = one.kind == "integers" and one.dtype == "int64"
    cast = "" if native else f".astype(np.{_identifier(one.dtype)})"
    found = f"random.{drawn}({low}, {high}, {shape})"
    return _Code(found + cast if sizes else f"np.asarray({found}){cast}")


def _number(value: int) -> _Code:
    return _Code(f"{value:_}" if value >= 10_000 else str(value))


def _shape(value: Sequence[int | Sequence[int]]) -> _Code:
    """Return the shape of a batch of arrays with these sizes, some of which grow with the text."""
    return _Code(f"(len(lengths), {_sizes(value)})" if value else "len(lengths)")


def _grown(step: int, per: int) -> str:
    grown = f"max(lengths) // {int(per)}" if per != 1 else "max(lengths)"
    if step == 1:
        return grown
    return f"{int(step)} * ({grown})" if per != 1 else f"{int(step)} * {grown}"


def _sizes(value: Sequence[int | Sequence[int]]) -> _Code:
    """Return the sizes of axes, some of which grow with the text."""
    return _Code(", ".join(map(_size, value)))


def _size(value: int | Sequence[int]) -> _Code:
    """Return the size of one axis."""
    return _Code(str(int(value)) if isinstance(value, int) else _grown(*value))


def _variable(name: str) -> str:
    """Return the variable that holds an input: the last part of a name such as `added_cond_kwargs.time_ids`."""
    whole, _, part = name.partition(".")
    return part if part.isidentifier() and part != "list" else f"{whole}_{part}" if part.isdigit() else whole


def _axes(value: Sequence[str]) -> _Code:
    """Return the position of a cell on each axis, as variables; 0 on the other axes."""
    return _Code(", ".join(_identifier(one) if one else "0 * row" for one in value))


@functools.cache
def environment(template_folder: Path | None = None) -> jinja2.Environment:
    """Return the environment of suite templates; a user's folder comes first, and its templates can't run code."""
    folders = [folder for folder in (template_folder, TEMPLATES) if folder is not None]
    kind = jinja2.Environment if template_folder is None else OwnTemplates
    made = kind(
        loader=FolderAlone(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=_finalize,
    )
    made.filters |= {
        "literal": _literal,
        "inline": _inline,
        "names": _names,
        "identifier": _identifier,
        "variable": _variable,
        "shape": _shape,
        "size": _size,
        "sizes": _sizes,
        "axes": _axes,
        "doc": _doc,
        "number": _number,
        "dotted": _dotted,
        "keywords": _keywords,
        "draw": _draw,
        "join_numbers": lambda values: _Code(", ".join(str(int(value)) for value in values)),
        "code": _Code,
        "product": math.prod,
    }
    return made


def _imports(recipe: Recipe) -> str:
    configured = [recipe.config_class] if recipe.library == "transformers" else []
    names = sorted({_identifier(name) for name in (*configured, recipe.model_class)})
    line = f"from {_identifier(recipe.library)} import {', '.join(names)}"
    if len(line) <= _WIDTH:
        return line
    return f"from {recipe.library} import (\n" + "".join(f"    {name},\n" for name in names) + ")"


def _named(recipe: Recipe, cell: Cell) -> str | None:
    """Return the model's placeholder in the command if it isn't the cell's: a suite contains no path."""
    if recipe.subject == "checkpoint":
        return f"<folder of {cell.model}>"
    return "<folder with config.json>" if "config.json" in recipe.dimensions else None


def _weights_line(recipe: Recipe) -> str:
    if recipe.subject == "checkpoint":
        return f"checkpoint: {recipe.parameters:,} parameters, identified by their hash"
    if recipe.subject == "config":
        return f"config: {recipe.parameters:,} parameters, {recipe.dimensions}; seeded random weights, no download"
    settings = f", {recipe.dimensions}" if recipe.dimensions else ""
    return f"tiny: {recipe.parameters:,} parameters{settings}, seeded random weights, no download"


def _other_version(recipe: Recipe) -> str:
    """Return the library and the other version that recorded the numbers of a recipe; an empty text if none did."""
    origin = recipe.recorded["origin"]
    return f"{recipe.library} {origin.removeprefix(KEPT)}" if origin.startswith(KEPT) else ""


def _recorded(recorded: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    positions = [tuple(position) for position in recorded.get("positions", ())]
    return dict(zip(positions, recorded.get("values", ()), strict=True))


def checks_of(recipe: Recipe, cell: Cell) -> tuple[Check, ...]:
    """Return the checks of the suite of a recipe for `cell`, in their order."""
    return applicable_checks(
        generates=recipe.generate,
        has_mask=recipe.mask_input is not None,
        has_cache=not recipe.without_cache,
        can=backend_class(cell.target.name).CAN,
        task=recipe.task,
        in_recipe=recipe.calls_in(cell.precision),
        precision=cell.precision,
    )


def exercised_by(recipe: Recipe, cell: Cell) -> str:
    """Return how much of the modeling code the suite for `cell` enters; empty if that is unknown. It was counted on
    the CPU in float32, with calls that other suites lack."""
    is_counted = cell.precision == "float32" and "calls" in backend_class(cell.target.name).CAN
    return recipe.exercised if is_counted else ""


def render(
    recipe: Recipe,
    cell: Cell,
    rule_ids: Sequence[str],
    *,
    template_folder: Path | None = None,
    tolerance: OwnTolerance | None = None,
    folder: str = "",
    hub_id: str = "",
) -> str:
    """Return the text of the suite for `cell`: the same bytes for the same arguments on every machine.

    A checkpoint lies in `folder`, relative to the suite, or in the local Hub cache under `hub_id`; without either,
    the variable HWCOMPAT_CHECKPOINTS names its folder. `tolerance` is a repository's own, shown in the suite with its
    reason; without one the product's tolerance counts. Raises `UsageError` if the recipe's architecture has no
    template, or if a user's template is broken.
    """
    checks = checks_of(recipe, cell)
    masked = covered_by(recipe.mask_input, recipe.inputs) if recipe.mask_input else ""
    uses_mask = any(spec["kind"] == "mask" for spec in recipe.inputs.values())
    draws = other_draws(recipe.recorded["lengths"])
    whole = [max(recipe.recorded["lengths"])] * len(recipe.recorded["lengths"])
    values = {
        **_shared(recipe, cell, rule_ids, checks, tolerance, folder, model=_named(recipe, cell), **sizes(recipe)),
        "subject": recipe.subject,
        "hub_id": hub_id,
        "weights_line": _weights_line(recipe),
        "recipe_digest": recipe.digest if recipe.subject == "tiny" and not recipe.dimensions else "",
        "imports": _imports(recipe),
        "recorded_here": recipe.recorded["origin"].startswith(HERE),
        "recorded_with": _other_version(recipe),
        "lengths": tuple(recipe.recorded["lengths"]),
        "whole": tuple(whole),
        "variants": [
            {name: value for name, value in one.items() if name not in ("positions", "values")}
            | {"recorded": _recorded(one)}
            for one in recipe.calls.get("variants", {}).get("configs", ())
            if any(check.name == "variants" for check in checks)
        ],
        "optional_calls": [
            {"lengths": tuple(whole if one["whole"] else recipe.recorded["lengths"]), "arguments": one["arguments"]}
            for one in recipe.calls.get("optional_arguments", {}).get("calls", ())
        ],
        "exercised": exercised_by(recipe, cell),
        "recorded_of": {name: _recorded(call) for name, call in recipe.calls.items()},
        "uses_mask": uses_mask,
        "other_draws": draws if uses_mask else draws[:-1],
        "places": placeholders(recipe.inputs),
        "is_composed": recipe.subject != "checkpoint"
        and any("model_type" in value for value in recipe.config.values() if isinstance(value, Mapping)),
        "masked": masked,
        "token_limit": recipe.inputs.get(masked, {}).get("high", 0),
    }
    return _filled(recipe.architecture, values, template_folder)


def render_given(
    recipe: GivenRecipe,
    cell: Cell,
    rule_ids: Sequence[str],
    *,
    template_folder: Path | None = None,
    tolerance: OwnTolerance | None = None,
    folder: str = "",
    inputs_folder: str = "",
) -> str:
    """Return the text of the suite for a user's own module, or for a graph file in `folder`, with given inputs in
    `inputs_folder`."""
    can = backend_class(cell.target.name).CAN
    checks = applicable_checks(generates="none", has_mask=False, has_cache=False, can=can, task=recipe.task)
    is_module = recipe.kind == "module"
    module, factory, arguments = factory_parts(recipe.name) if is_module else ("", "", {})
    model = recipe.name if is_module else f"<path of {recipe.name}>"
    inputs = ["--inputs", "<path of the inputs>"] if recipe.given else []
    values = {
        **_shared(recipe, cell, rule_ids, checks, tolerance, folder, model=model, more=inputs),
        "weights_line": recipe.weights_line,
        "dimensions": "as the factory makes it" if is_module else "",
        "module": module,
        "factory": factory,
        "arguments": arguments,
        "inputs_folder": inputs_folder,
    }
    return _filled("own-module" if is_module else "graph-file", values, template_folder)


def _shared(
    recipe: Recipe | GivenRecipe,
    cell: Cell,
    rule_ids: Sequence[str],
    checks: Sequence[Check],
    tolerance: OwnTolerance | None,
    folder: str,
    *,
    model: str | None,
    dims: str = "",
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values that every template gets."""
    return {
        "cell": cell,
        "recipe": recipe,
        "command": command_for(cell, model=model, config=tolerance.source if tolerance else "", dims=dims, more=more),
        "tolerance": tolerance,
        "folder": folder,
        "rules_line": ", ".join(id_ for id_ in rule_ids if "+" not in id_) or "no rule applies",
        "revisions": suite_revisions([check.name for check in checks]),
        "recorded": _recorded(recipe.recorded),
        "checks": checks,
        "computed_dtype": backend_class(cell.target.name).COMPUTES_IN.get(cell.precision, cell.precision),
    }


def _filled(architecture: str, values: Mapping[str, Any], template_folder: Path | None) -> str:
    """Return the stamped text of the template of that name; a user's folder comes first. Raises `UsageError`."""
    name = f"{architecture}.py.j2"
    if template_folder is not None:
        body = rendered_in_child(environment(template_folder), name, values)
    else:
        try:
            body = environment().get_template(name).render(values)
        except jinja2.TemplateNotFound as error:
            raise UsageError(f"the architecture {architecture} has no template") from error
    return stamp(body.rstrip("\n") + "\n")
