"""The known answer that `detect.probe` verifies: three numbers that only a real computation produces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

ABSOLUTE_TOLERANCE = 0.05
"""Wide enough for bfloat16 and TF32; a missing tanh or transpose changes an answer by more than 3."""

_SIZE = 8


def question() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two (8, 8) float32 arrays of multiples of 1/4, which every floating-point format represents exactly.

    The expected answer is the first three column sums of `tanh(left @ right)`.
    """
    import numpy as np

    row, column = np.indices((_SIZE, _SIZE))
    left = ((row * 7 + column * 3) % 11 - 3) / 4
    right = ((row * row * 6 + column * 3 + 1) % 13 - 5) / 4
    return left.astype(np.float32), right.astype(np.float32)


def expected() -> tuple[float, float, float]:
    """Return the answer, computed by NumPy in float64."""
    import numpy as np

    left, right = question()
    sums = np.tanh(left.astype(np.float64) @ right.astype(np.float64)).sum(axis=0)
    return float(sums[0]), float(sums[1]), float(sums[2])


def agrees(got: Sequence[float]) -> bool:
    """Return whether three numbers are the expected ones; numbers that aren't finite never are."""
    wanted = expected()
    return len(got) == len(wanted) and all(
        abs(one - other) <= ABSOLUTE_TOLERANCE for one, other in zip(got, wanted, strict=True)
    )
