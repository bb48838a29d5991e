"""A pytest plugin that breaks the model under test when it is passed to the backend.

A runner states what to do with each suite in the file that `HWCOMPAT_MUTANTS` names. By hand,
`HWCOMPAT_MUTANT=<operator>@<seed>` breaks every suite of a run; without either, nothing is changed.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hwcompat.hardware.backends._torch import TorchBackend
from hwcompat.hardware.backends.base import BaseBackend, FileInput
from hwcompat.hardware.backends.factory import get_backend
from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing.graph_files import GraphTest

from .file_breaks import break_file
from .model_anatomy import ModelAnatomy, change
from .mutation_operators import mutate, parse_mutant
from .orders import ORDERS_VARIABLE, Made, Order, read_orders

if TYPE_CHECKING:
    from hwcompat.hardware.backends.base import Inputs, ModelInput, Runnable

MUTANT_VARIABLE = "HWCOMPAT_MUTANT"

_KEY = pytest.StashKey["Breaker"]()


class Breaker:
    """Wrap the loading of models and of graph files for one session, and track the current suite."""

    def __init__(self, orders: Mapping[Path, Order], everywhere: Order | None) -> None:
        self._orders = orders
        self._everywhere = everywhere
        self._order = everywhere or Order()
        self._patch = pytest.MonkeyPatch()
        self.made: list[Made] = []

    def install(self) -> None:
        """Break models that are loaded from here on, and choose the target."""
        load = TorchBackend.load

        def broken(
            backend: TorchBackend, model_input: ModelInput, example_inputs: Inputs, precision: str
        ) -> Runnable:
            if self._order.mutants:
                self._break(model_input, example_inputs)
            return load(backend, model_input, example_inputs, precision)

        def placed(target: Target | str) -> BaseBackend:
            return get_backend("cpu" if self._order.on_cpu else target)

        load_file = GraphTest._load

        def broken_file(case: GraphTest) -> Runnable:
            if not self._order.mutants:
                return load_file(case)
            with tempfile.TemporaryDirectory(prefix="hwcompat-") as folder:
                file, made = break_file(case, case.make_model(), self._order, Path(folder))
                self._report(made)
                return case.backend.load_file(FileInput(file=file), case.inputs, case.cell.precision)

        self._patch.setattr(TorchBackend, "load", broken)
        self._patch.setattr(GraphTest, "_load", broken_file)
        self._patch.setattr("hwcompat.hardware.testing.model_test.get_backend", placed)

    def undo(self) -> None:
        """Undo `install`."""
        self._patch.undo()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Make the suite of the check the current one."""
        self._order = self._orders.get(item.path.resolve(), self._everywhere or Order())
        if self._order.threads:
            import torch

            torch.set_num_threads(self._order.threads)

    def _break(self, model_input: ModelInput, inputs: Inputs) -> None:
        self._report(break_model(model_input, inputs, self._order))

    def _report(self, made: Made) -> None:
        self.made.append(made)
        if self._order.report:
            Path(self._order.report).write_text(json.dumps(made.to_dict()), encoding="utf-8")


def break_model(model_input: ModelInput, inputs: Inputs, order: Order) -> Made:
    """Break the model of `model_input` in place, as ordered.

    The change is measured on copies, since some breaks remember calls.
    """
    clean = copy.deepcopy(model_input.model)
    anatomy = ModelAnatomy(clean, inputs, trains_only=model_input.trains_only)
    refused: dict[str, str] = {}
    quiet = Made()
    for text in order.mutants:
        operator, seed = parse_mutant(text)
        trial = copy.deepcopy(clean)
        try:
            mutant = mutate(trial, operator, seed, anatomy)
            size = change(clean, trial, inputs, generates=model_input.generates, masked_by=model_input.masked_by)
        except ValueError as error:
            refused[text] = str(error)
            continue
        except Exception as error:  # a model of an unexpected structure may raise anything
            refused[text] = f"{type(error).__name__}: {error}"
            continue
        if size > order.least:
            mutate(model_input.model, operator, seed, anatomy)
            return Made(mutant=mutant, change=size, refused=refused)
        refused[text] = f"it changes the outputs by {size:.1e} of their scale; more than {order.least:.0e} is needed"
        quiet = Made(mutant=mutant, change=size)
    return Made(mutant=quiet.mutant, change=quiet.change, refused=refused)


def pytest_configure(config: pytest.Config) -> None:
    """Install what the environment requests. An unknown break is a usage error."""
    by_hand, file = os.environ.get(MUTANT_VARIABLE), os.environ.get(ORDERS_VARIABLE)
    if not (by_hand or file):
        return
    try:
        everywhere = Order(mutants=(by_hand,)) if by_hand and parse_mutant(by_hand) else None
        breaker = Breaker(read_orders(Path(file)) if file else {}, everywhere)
    except (UsageError, ValueError, OSError) as error:
        raise pytest.UsageError(f"{MUTANT_VARIABLE if by_hand else ORDERS_VARIABLE}: {error}") from error
    breaker.install()
    config.stash[_KEY] = breaker
    config.pluginmanager.register(breaker)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Undo the break."""
    breaker = config.stash.get(_KEY, None)
    if breaker is not None:
        breaker.undo()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report what was broken, or that nothing was."""
    breaker = config.stash.get(_KEY, None)
    if breaker is not None:
        for made in breaker.made or [Made()]:
            terminalreporter.write_line(f"Mutant: {made}")
