"""Choose the models of a command line: names, a list on standard input, a priority, architectures and traits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwcompat.generators.compatibility.vocabulary import vocabulary
from hwcompat.generators.model_profile import Profile, profile_of
from hwcompat.generators.models.basic_classification import classify
from hwcompat.generators.models.classification import Classification, classify_type
from hwcompat.generators.models.model_libraries import catalog_of, is_known
from hwcompat.generators.models.priority import types_of_priority
from hwcompat.generators.models.recipe_store import refusal_of
from hwcompat.generators.recipes.derive_many import Wanted, missing
from hwcompat.generators.recipes.on_demand import derive_missing
from hwcompat.hardware.errors import ModelError, NothingMatched, UsageError, did_you_mean, echo

_TOGETHER = 3
"""From this number of types without a stored recipe, one process derives all of them."""


@dataclass(frozen=True, kw_only=True)
class ChosenModels:
    """Names in the order of the command line, each once. `by_name` are those that a person wrote: one that can't
    be built is an error, while types of a priority or an architecture without a suite only give a note."""

    names: tuple[str, ...]
    by_name: frozenset[str]


def choose_models(
    models: Sequence[str],
    *,
    priority: str | None = None,
    architectures: Sequence[str] = (),
    read_list: Callable[[], Iterable[str]],
) -> ChosenModels:
    """Return the requested models; `read_list` returns the lines of standard input if a name is `-`.

    A priority adds types; architectures (or traits) narrow the list, and without names or a priority they select from
    all types. Raises `UsageError` if nothing was requested, `NothingMatched` if nothing is left.
    """
    wanted = _known_shapes(architectures)
    named: list[str] = []
    for model in models:
        named += list_entries(read_list()) if model == "-" else [model]
    if models and not named:
        raise UsageError(
            "standard input names no model", why="it is empty or has only comments", fix="Write one name per line."
        )
    types = types_of_priority(priority or ("all" if wanted and not named else None))
    names = tuple(dict.fromkeys([*named, *types]))
    if not names:
        raise UsageError(
            "no model was named",
            fix="For example: hwcompat run --model bert --device auto",
        )
    kept = tuple(name for name in names if not wanted or _is_one_of(_shape(name, name in named), wanted))
    if not kept:
        raise NothingMatched(
            f"none of the {len(names)} models matches {' or '.join(sorted(wanted))}", fix="Leave --architectures out."
        )
    return ChosenModels(names=kept, by_name=frozenset(named))


def list_entries(lines: Iterable[str]) -> list[str]:
    """Return the names in a list: one per line, without blank lines and comments after #."""
    entries = (line.split("#", 1)[0].strip() for line in lines)
    return [entry for entry in entries if entry]


def profiles_of(
    chosen: ChosenModels,
    tasks: Sequence[str] = (),
    *,
    dims: str = "tiny",
    length: int | None = None,
    allow_tiny: bool = False,
    inputs: Path | None = None,
) -> tuple[tuple[Profile, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the profiles of the chosen models, one per task; why others have none, each beginning with its name; and
    the names of those among them that a person wrote.

    `tasks` are names, or `all` for every task that the library maps; without any it is the primary one. Raises
    `ModelError` or `BrokenInput` for a name that is no model and for a model that was named alone; `NothingMatched`
    if nothing is left.
    """
    found: list[Profile] = []
    refused: list[str] = []
    unmet: list[str] = []
    if dims == "tiny":
        _derive_missing(chosen, tasks)
    for name in chosen.names:
        by_name = name in chosen.by_name and "all" not in tasks  # otherwise the task wasn't requested
        for task in tasks_of(name, tasks):
            known = refusal_of(name, task)
            if known is not None and (name not in chosen.by_name or len(chosen.names) > 1):
                why = f"{name}: {known.obstacle}: {known.reason}"
            else:
                try:
                    found.append(
                        profile_of(name, task, dims=dims, length=length, allow_tiny=allow_tiny, inputs=inputs)
                    )
                    continue
                except ModelError as error:
                    if by_name and (len(chosen.names) == 1 or not is_known(name)):
                        raise
                    why = f"{name}{f' ({task})' if task else ''}: {error}"
            refused.append(why)
            unmet += [name] if by_name else []
    if not found:
        raise NothingMatched("none of the models has a suite", why=refused[0] if refused else "")
    return tuple(found), tuple(refused), tuple(dict.fromkeys(unmet))


def _derive_missing(chosen: ChosenModels, tasks: Sequence[str]) -> None:
    """Derive several types without a stored recipe together, so that the libraries are imported only once."""
    if tasks and "all" not in tasks:
        return
    types = [name for name in chosen.names if is_known(name)]
    wanted = [Wanted(model_type=name, task=task) for name in types for task in (None, *_others(name, tasks))]
    lacking = dict.fromkeys(one.model_type for one in missing(wanted))
    if len(lacking) >= _TOGETHER:
        derive_missing(tuple(lacking), all_tasks="all" in tasks)


def _others(name: str, tasks: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.task for one in catalog_of(name).tasks_of(name)[1:]) if "all" in tasks else ()


def tasks_of(name: str, asked: Sequence[str]) -> tuple[str | None, ...]:
    """Return the tasks that words or `all` mean; None is a model's primary task."""
    if "all" in asked:
        model_type = classify(name).model_type
        return (None, *_others(model_type, asked))
    return tuple(asked) or (None,)


def _known_shapes(asked: Sequence[str]) -> frozenset[str]:
    words = vocabulary()
    known = [*words.architectures, *words.traits]
    for word in asked:
        if word not in known:
            raise UsageError(
                f"{echo(word)} isn't an architecture or a trait",
                fix=did_you_mean(word, known) or f"Known: {', '.join(known)}.",
            )
    return frozenset(asked)


def _shape(name: str, by_name: bool) -> Classification:
    return classify(name) if by_name else classify_type(name)


def _is_one_of(found: Classification, wanted: frozenset[str]) -> bool:
    return found.architecture in wanted or bool(wanted & set(found.traits))
