"""What differs between two coverages: what passes or fails newly, which types came and went, and obstacles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .facts import Coverage, Standing

NO_OBSTACLE = "none"


@dataclass(frozen=True, kw_only=True)
class Move:
    """A model type whose standing on a target, or whose obstacle, isn't what it was."""

    model_type: str
    before: str
    now: str

    @property
    def passes_newly(self) -> bool:
        """Whether it is shown to work better than it was."""
        return _rank(self.now) > _rank(self.before)

    @property
    def fails_newly(self) -> bool:
        """Whether a check fails now; what only wasn't run again doesn't."""
        return self.now == Standing.FAILED


def _rank(standing: str) -> int:
    return {Standing.PASSED: 2, Standing.CONDITIONAL: 1}.get(Standing(standing), 0)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The difference from the report made at `since` with the version `transformers`; `moves` by target.

    `not_compared` are targets that the earlier report doesn't speak of.
    """

    since: str
    transformers: str
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    obstacles: tuple[Move, ...]
    moves: Mapping[str, tuple[Move, ...]]
    not_compared: tuple[str, ...] = ()

    def is_empty(self, transformers: str) -> bool:
        """Whether nothing differs, the version of transformers included."""
        lists = (self.new, self.vanished, self.obstacles, self.not_compared, *self.moves.values())
        return self.transformers == transformers and not any(lists)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Changes:
        """The changes that `to_dict` wrote."""
        return cls(
            since=data["since"],
            transformers=data["transformers"],
            new=tuple(data["new"]),
            vanished=tuple(data["vanished"]),
            obstacles=tuple(Move(**move) for move in data["obstacles"]),
            moves={target: tuple(Move(**move) for move in moves) for target, moves in data["moves"].items()},
            not_compared=tuple(data["not_compared"]),
        )


MOVES: Mapping[str, Callable[[Move], bool]] = {
    "newly passing": lambda move: move.passes_newly,
    "newly failing": lambda move: move.fails_newly,
    "changed otherwise": lambda move: not (move.passes_newly or move.fails_newly),
}
"""The lists that the moves of a target make."""


def changes_between(before: Coverage, now: Coverage, *, since: str, transformers: str) -> Changes:
    """What differs `now` from `before`, a coverage of the version `transformers` at the moment `since`."""
    then = {one.target: {result.model_type: result.standing for result in one.results} for one in before.targets}
    obstacles = _obstacles(before), _obstacles(now)
    both = [name for name in obstacles[1] if name in obstacles[0]]
    return Changes(
        since=since,
        transformers=transformers,
        new=tuple(name for name in obstacles[1] if name not in obstacles[0]),
        vanished=tuple(name for name in obstacles[0] if name not in obstacles[1]),
        obstacles=tuple(
            Move(model_type=name, before=obstacles[0][name], now=obstacles[1][name])
            for name in both
            if obstacles[0][name] != obstacles[1][name]
        ),
        moves={
            one.target: tuple(
                Move(model_type=result.model_type, before=str(standing), now=str(result.standing))
                for result in one.results
                if (standing := then[one.target].get(result.model_type)) not in (None, result.standing)
            )
            for one in now.targets
            if one.target in then
        },
        not_compared=tuple(one.target for one in now.targets if one.target not in then),
    )


def _obstacles(coverage: Coverage) -> dict[str, str]:
    """What keeps each type from having a recipe, in words of `Obstacle`; `none` where nothing does."""
    refused = {
        result.model_type
        for target in coverage.targets
        for result in target.results
        if result.standing is Standing.NOT_DERIVED
    }
    return {
        one.model_type: one.obstacle or (str(Standing.NOT_DERIVED) if one.model_type in refused else NO_OBSTACLE)
        for one in coverage.types
    }


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Types under one heading of what is new; `ways` are their names by `failed → passed`, or by nothing."""

    heading: str
    ways: Mapping[str, tuple[str, ...]]

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(len(names) for names in self.ways.values())

    @property
    def words(self) -> str:
        """All names, each way said once."""
        return "; ".join(
            f"{way}: {', '.join(names)}" if way else ", ".join(names) for way, names in self.ways.items()
        )


def changes_lists(changes: Changes, transformers: str) -> tuple[str, tuple[Listed, ...]]:
    """What differs from the earlier report: a sentence, and what is listed below it."""
    versions = "" if changes.transformers == transformers else f" of transformers {changes.transformers}"
    now = f", now {transformers}" if versions else ""
    sentence = f"Compared with the report{versions} of {changes.since[:19].replace('T', ' ')} UTC{now}"
    lists = [
        Listed(heading=f"{target}: {heading}", ways=_ways([move for move in moves if fits(move)]))
        for target, moves in changes.moves.items()
        for heading, fits in MOVES.items()
    ]
    lists += [
        Listed(heading="new types", ways={"": changes.new}),
        Listed(heading="vanished types", ways={"": changes.vanished}),
        Listed(heading="obstacles that changed", ways=_ways(changes.obstacles)),
        Listed(heading="not in the earlier report", ways={"": changes.not_compared}),
    ]
    said = tuple(one for one in lists if one.number)
    return f"{sentence}." if said else f"{sentence}: nothing changed.", said


def _ways(moves: Sequence[Move]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for move in moves:
        found.setdefault(_readable(move), []).append(move.model_type)
    return {way: tuple(found[way]) for way in sorted(found)}


def _readable(move: Move) -> str:
    return f"{move.before} → {move.now}".replace("_", " ")
