"""The known-answer question of `detection.probe`: three numbers that only a real computation gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

ABSOLUTE_TOLERANCE = 0.05
"""Wide enough for bfloat16 and TF32; forgetting the tanh or a transpose moves an answer by more than 3."""

_SIZE = 8


def question() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Two (8, 8) float32 arrays of quarters, which every floating-point format holds exactly.

    The answer to give: the first three column sums of `tanh(left @ right)`.
    """
    import numpy as np

    row, column = np.indices((_SIZE, _SIZE))
    left = ((row * 7 + column * 3) % 11 - 3) / 4
    right = ((row * row * 6 + column * 3 + 1) % 13 - 5) / 4
    return left.astype(np.float32), right.astype(np.float32)


def expected() -> tuple[float, float, float]:
    """The answer, by NumPy in float64."""
    import numpy as np

    left, right = question()
    sums = np.tanh(left.astype(np.float64) @ right.astype(np.float64)).sum(axis=0)
    return float(sums[0]), float(sums[1]), float(sums[2])


def agrees(got: Sequence[float]) -> bool:
    """Whether three numbers are the expected ones; a number that isn't finite never is."""
    wanted = expected()
    return len(got) == len(wanted) and all(
        abs(one - other) <= ABSOLUTE_TOLERANCE for one, other in zip(got, wanted, strict=True)
    )
