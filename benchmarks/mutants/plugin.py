"""A pytest plug-in that breaks the model under test as it is handed to the backend.

`HWCOMPAT_MUTANT=<operator>@<seed>` chooses the break; where it isn't set, nothing is touched. What was broken and
how much it changed goes into the file named in `HWCOMPAT_MUTANT_REPORT`, and into pytest's summary.
"""

from __future__ import annotations

import copy
import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hardware.backends._torch import TorchBackend
from hardware.errors import UsageError

from .operators import Mutant, mutate, parse_mutant
from .probe import change

if TYPE_CHECKING:
    from hardware.backends.base import Inputs, ModelSubject, Runnable

MUTANT_VARIABLE = "HWCOMPAT_MUTANT"
REPORT_VARIABLE = "HWCOMPAT_MUTANT_REPORT"

_KEY = pytest.StashKey["_Breaker"]()


class _Breaker:
    """Stands before `TorchBackend.load` for one session."""

    def __init__(self, operator: str, seed: int) -> None:
        self.operator = operator
        self.seed = seed
        self.patch = pytest.MonkeyPatch()
        self.done: tuple[Mutant, float] | None = None

    def install(self) -> None:
        load = TorchBackend.load

        def broken(backend: TorchBackend, subject: ModelSubject, example_inputs: Inputs, precision: str) -> Runnable:
            self.break_subject(subject, example_inputs)
            return load(backend, subject, example_inputs, precision)

        self.patch.setattr(TorchBackend, "load", broken)

    def break_subject(self, subject: ModelSubject, inputs: Inputs) -> None:
        """Measure the change on copies, since some breaks remember calls; then break the subject itself."""
        clean, trial = copy.deepcopy(subject.model), copy.deepcopy(subject.model)
        mutate(trial, self.operator, self.seed, inputs)
        size = change(clean, trial, inputs, generates=subject.generates, masked_by=subject.masked_by)
        self.done = mutate(subject.model, self.operator, self.seed, inputs), size
        path = os.environ.get(REPORT_VARIABLE)
        if path:
            Path(path).write_text(json.dumps(report(*self.done)), encoding="utf-8")


def report(mutant: Mutant, size: float) -> dict[str, Any]:
    """A mutant and the change that it made, as JSON; `inf` is written as text, for JSON has no such number."""
    return asdict(mutant) | {"change": size if math.isfinite(size) else "inf"}


def pytest_configure(config: pytest.Config) -> None:
    """Install the break that the environment names. An unknown one is a usage error."""
    text = os.environ.get(MUTANT_VARIABLE)
    if not text:
        return
    try:
        breaker = _Breaker(*parse_mutant(text))
    except UsageError as error:
        raise pytest.UsageError(f"{MUTANT_VARIABLE}: {error}") from error
    breaker.install()
    config.stash[_KEY] = breaker


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the break back."""
    breaker = config.stash.get(_KEY, None)
    if breaker is not None:
        breaker.patch.undo()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was broken, or that nothing was."""
    breaker = config.stash.get(_KEY, None)
    if breaker is None:
        return
    if breaker.done is None:
        terminalreporter.write_line(f"Mutant {breaker.operator}@{breaker.seed}: no model was loaded")
        return
    mutant, size = breaker.done
    terminalreporter.write_line(
        f"Mutant {mutant.operator}@{mutant.seed}: {mutant.describe}; side {mutant.side}; {mutant.site}; "
        f"outputs changed by {size:.2g} of their scale"
    )
