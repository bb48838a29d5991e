"""`Ledger`: when each storage was allocated and released, so that the peak and what it is made of are known."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

KINDS = ("weights", "gradients", "optimiser", "inputs", "cache", "activations", "workspace")
"""What a byte may be there for."""
ACTIVATIONS = "activations"


class Ledger:
    """Storages in the order in which they come and go. A storage counts once, whatever views there are of it."""

    def __init__(self) -> None:
        self._kinds: list[str] = []
        self._sizes: list[int] = []
        self._moves: list[int] = []
        """Each entry is a storage's place + 1 at its birth, minus that at its end."""
        self._alive: dict[int, tuple[Any, int]] = {}

    def track(self, tensors: Iterable[torch.Tensor], kind: str = "") -> None:
        """Count the storages of `tensors`; with `kind`, say what they are there for, those known already too."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            known = self._alive.get(key)
            if known is None:
                place = len(self._sizes)
                self._sizes.append(storage.nbytes())
                self._kinds.append(kind or ACTIVATIONS)
                self._moves.append(place + 1)
                self._alive[key] = (weakref.ref(storage, self._releaser(key, place)), place)
            elif kind:
                self._kinds[known[1]] = kind

    def _releaser(self, key: int, place: int) -> Callable[[Any], None]:
        def release(_: Any) -> None:
            self._moves.append(-place - 1)
            self._alive.pop(key, None)

        return release

    def passing(self, size: int) -> None:
        """Count what a kernel allocates inside itself, in bytes: there and gone."""
        place = len(self._sizes)
        self._sizes.append(size)
        self._kinds.append("workspace")
        self._moves += [place + 1, -place - 1]

    def at_peak(self) -> dict[str, int]:
        """Bytes by kind at the moment when most were allocated."""
        total = highest = when = 0
        for step, move in enumerate(self._moves):
            total += self._sizes[move - 1] if move > 0 else -self._sizes[-move - 1]
            if total > highest:
                highest, when = total, step
        found = dict.fromkeys(KINDS, 0)
        for move in self._moves[: when + 1]:
            place = abs(move) - 1
            found[self._kinds[place]] += self._sizes[place] if move > 0 else -self._sizes[place]
        return found
