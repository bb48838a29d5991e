"""What the pytest plug-in is told of a suite: which break to make in it. A file of them travels to the children."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .probe import SMALLEST_CHANGE

ORDERS_VARIABLE = "HWCOMPAT_MUTANTS"
"""Names the file that `write_orders` wrote."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to do with one suite.

    Of `mutants`, each `<operator>@<seed>`, the first is made that the model has a place for and that moves its
    outputs by more than `least`, relative to their scale; none where there are none. What was made goes into the
    file `report`. `on_cpu` takes the suite to CPU whatever target its cell names, and `threads` is how many torch
    computes with, 0 for as many as it likes.
    """

    mutants: tuple[str, ...] = ()
    report: str = ""
    least: float = SMALLEST_CHANGE
    on_cpu: bool = False
    threads: int = 0


def write_orders(path: Path, orders: Mapping[Path, Order]) -> None:
    """Write what is to be done with each suite, by its file."""
    text = json.dumps({str(suite.resolve()): asdict(order) for suite, order in orders.items()})
    path.write_text(text, encoding="utf-8")


def read_orders(path: Path) -> dict[Path, Order]:
    """The orders by suite. Raises `ValueError` or `OSError` where the file holds none."""
    read = json.loads(path.read_text(encoding="utf-8"))
    return {Path(suite): Order(**{**order, "mutants": tuple(order["mutants"])}) for suite, order in read.items()}
