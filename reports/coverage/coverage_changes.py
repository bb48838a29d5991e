"""Compare two coverages: what newly passes or fails, new and vanished types, and obstacles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .coverage_facts import Coverage, CoverageStatus

NO_OBSTACLE = "none"


@dataclass(frozen=True, kw_only=True)
class Move:
    """A model type whose standing on a target, or whose obstacle, has changed."""

    model_type: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class CoverageChanges:
    """The difference from the report of `since` with the version `transformers`; `moves` by target.

    `not_compared` are targets that the earlier report doesn't have.
    """

    since: str
    transformers: str
    new: Sequence[str]
    vanished: Sequence[str]
    obstacles: Sequence[Move]
    moves: Mapping[str, Sequence[Move]]
    not_compared: Sequence[str] = ()

    def is_empty(self, transformers: str) -> bool:
        """Whether nothing differs, including the version of transformers."""
        lists = (self.new, self.vanished, self.obstacles, self.not_compared, *self.moves.values())
        return self.transformers == transformers and not any(lists)

    def sentence(self, transformers: str) -> str:
        """Return which report it was compared with, and whether anything changed."""
        other = self.transformers != transformers
        versions = f" of transformers {self.transformers}" if other else ""
        now = f", now {transformers}" if other else ""
        nothing = "" if any(self.lists()) else ": nothing changed"
        return f"Compared with the report{versions} of {self.since[:19].replace('T', ' ')} UTC{now}{nothing}."

    def lists(self) -> Iterator[str]:
        """Return the differences as lists: a heading, the number of types, and their names by kind of change."""
        named: dict[str, Mapping[str, Sequence[str]]] = {
            f"{target}: {heading}": _by_change([move for move in moves if fits(move)])
            for target, moves in self.moves.items()
            for heading, fits in _MOVES.items()
        }
        named["new types"] = {"": self.new}
        named["vanished types"] = {"": self.vanished}
        named["changed obstacles"] = _by_change(self.obstacles)
        named["not in the earlier report"] = {"": self.not_compared}
        for heading, ways in named.items():
            number = sum(map(len, ways.values()))
            words = (f"{way}: {', '.join(names)}" if way else ", ".join(names) for way, names in ways.items())
            if number:
                yield f"{heading} ({number}): {'; '.join(words)}"


def _passes_newly(move: Move) -> bool:
    """Whether it works better than before."""
    ranks = {CoverageStatus.PASSED: 2, CoverageStatus.CONDITIONAL: 1}
    return ranks.get(CoverageStatus(move.now), 0) > ranks.get(CoverageStatus(move.before), 0)


def _fails_newly(move: Move) -> bool:
    """Whether a check fails now; one that only wasn't run again doesn't."""
    return move.now == CoverageStatus.FAILED


_MOVES: Mapping[str, Callable[[Move], bool]] = {
    "newly passing": _passes_newly,
    "newly failing": _fails_newly,
    "changed otherwise": lambda move: not (_passes_newly(move) or _fails_newly(move)),
}
"""The lists of a target's moves."""


def _by_change(moves: Sequence[Move]) -> dict[str, list[str]]:
    """Return the types by `failed → passed`."""
    found: dict[str, list[str]] = {}
    for move in moves:
        found.setdefault(f"{move.before} → {move.now}".replace("_", " "), []).append(move.model_type)
    return dict(sorted(found.items()))


def changes_between(before: Coverage, now: Coverage, *, since: str, transformers: str) -> CoverageChanges:
    """Compare `now` with `before`, a coverage of the version `transformers` made at `since`."""
    then = {one.target: {result.model_type: result.standing for result in one.results} for one in before.targets}
    standings = {one.target: {result.model_type: result.standing for result in one.results} for one in now.targets}
    old, new = _obstacles(before), _obstacles(now)
    return CoverageChanges(
        since=since,
        transformers=transformers,
        new=[name for name in new if name not in old],
        vanished=[name for name in old if name not in new],
        obstacles=_moves(old, new),
        moves={target: _moves(then[target], found) for target, found in standings.items() if target in then},
        not_compared=[target for target in standings if target not in then],
    )


def _moves(before: Mapping[str, str], now: Mapping[str, str]) -> list[Move]:
    return [
        Move(model_type=name, before=str(before[name]), now=str(found))
        for name, found in now.items()
        if before.get(name, found) != found
    ]


def _obstacles(coverage: Coverage) -> dict[str, str]:
    """Return why each type has no recipe, as a word of `Obstacle`; `none` if it has one."""
    refused = {
        result.model_type
        for target in coverage.targets
        for result in target.results
        if result.standing is CoverageStatus.NOT_DERIVED
    }
    return {
        one.model_type: one.excluded.obstacle
        if one.excluded
        else str(CoverageStatus.NOT_DERIVED)
        if one.model_type in refused
        else NO_OBSTACLE
        for one in coverage.types
    }
