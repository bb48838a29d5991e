"""`OwnModuleTest`, the base of suites of users' own modules."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..compare import Array
from ..evidence.record import Stage
from .given_test import GivenTest
from .measurement import Ambiguous, Outputs, comparison_of
from .tolerances import file_rule


class OwnModuleTest(GivenTest):
    """A `GivenTest` of a user's own module.

    A reference is kept for the state of all code imported from the working directory: the module may use functions of
    any of its files. Without gradients in float64 (`has_gradients`), the target must have none either.
    """

    def __init__(self, *arguments: Any, has_gradients: bool = True, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._has_gradients = has_gradients
        self._again = (arguments, named)

    @cached_property
    def _identity(self) -> str:
        here = Path.cwd()
        digest = hashlib.sha256(super()._identity.encode())
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        for file in sorted(Path(name) for name in files if name):
            if file.is_relative_to(here) and "site-packages" not in file.parts and file.is_file():
                digest.update(file.read_bytes())
        return digest.hexdigest()

    def reference(self, inputs: Mapping[str, Array]) -> Outputs:
        """Return the outputs on the CPU in float64, with their scales over several inputs."""
        return replace(super().reference(inputs), scales=self._judged_scales)

    def recorded_error(
        self,
        output: str,
        recorded: Mapping[tuple[int, ...], float],
        scale: float,
        inputs: Mapping[str, Array] | None = None,
    ) -> float:
        """Return the error of recorded elements relative to the output's scale over several inputs."""
        scale = self._judged_scales.get(output, scale)
        return self._judged(super().recorded_error(output, recorded, scale, inputs))

    def gradient_error(self) -> float:
        """Return the error of all gradients; if float64 has none, 0 if the target has none either."""
        if self._has_gradients:
            return self._judged_gradients(super().gradient_error())
        runnable = self._able("backward")
        with self._at(Stage.RUN):
            found = runnable.gradients(self.inputs)
        largest = max((float(np.abs(one).max(initial=0.0)) for one in found.values()), default=0.0)
        self._gradient_count = len(found)
        return self.measured.keep(comparison_of(largest, 1.0, "gradients (float64 has none)"))

    def gradient_norm_error(self, recorded: float) -> float:
        """Return the error of the norm of all gradients; 0 if there are none."""
        return self._judged_gradients(super().gradient_norm_error(recorded)) if self._has_gradients else 0.0

    def _judged_gradients(self, found: float) -> float:
        cost = file_rule().factor * max(self._costs.values(), default=0.0)
        if self.tolerance < found <= cost:
            raise Ambiguous(
                f"{self.measured.comparison}: float32 alone changes the outputs too much to judge gradients"
            )
        return found

    def seeded_error(self, inputs: Mapping[str, Array], gain: float) -> float:
        """Return the error of the same module with seeded test weights."""
        (cell, make_model, *_), named = self._again
        named = {**named, "gain": gain, "scales": {}, "parts": {}, "float32_costs": {}}
        with OwnModuleTest(cell, make_model, inputs, **named) as seeded:
            try:
                return seeded.error(seeded.run(inputs), seeded.reference(inputs))
            finally:
                self.measured.stage = seeded.measured.stage
                if seeded.measured.comparison is not None:
                    self.measured.keep(seeded.measured.comparison)


def use_working_directory() -> None:
    """Allow imports from the working directory, after all that is installed."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
