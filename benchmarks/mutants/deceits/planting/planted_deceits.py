"""Deceits on the sides of the reference, the suite, the runner and the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from planting_tools import after_import, took_effect, wrap

_MODEL_TEST, _PLUGIN = "hwcompat.hardware.testing.model_test", "hwcompat.hardware.testing.pytest_plugin"


def _break(model: Any) -> None:
    """Scale the largest matrix by 1.1, which seeded test weights must make detectable."""
    import torch

    with torch.no_grad():
        max((one for one in model.parameters() if one.ndim > 1), key=lambda one: one.numel()).mul_(1.1)
        for one in model.parameters():
            if one.ndim > 1:
                one.mul_(1.05)


def broken_model() -> None:
    """Break the model that the backend gets."""

    @after_import("hwcompat.hardware.backends._torch")
    def patch(module: ModuleType) -> None:
        @wrap(module.TorchBackend, "load")
        def load(original: Any, self: Any, subject: Any, *rest: Any) -> Any:
            _break(subject.model)
            if os.environ["HWCOMPAT_PLANT"] == "broken_model":
                took_effect()
            return original(self, subject, *rest)


def reference_from_broken_weights() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module, "fill")
        def fill(original: Any, *args: Any, **more: Any) -> Any:
            model = original(*args, **more)
            _break(model)
            took_effect()
            return model


def reference_echoes() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module.ModelTest, "reference")
        def reference(original: Any, self: Any, inputs: Any) -> Any:
            took_effect()
            return self.run(inputs)


def reference_of_the_first_inputs() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module.ModelTest, "reference")
        def reference(original: Any, self: Any, inputs: Any) -> Any:
            took_effect()
            return original(self, self.inputs)


def reference_shares_modules() -> None:
    @after_import("hwcompat.hardware.testing.reference")
    def patch(module: ModuleType) -> None:
        @wrap(module, "as_reference")
        def as_reference(original: Any, model: Any) -> Any:
            _break(model)
            took_effect()
            return original(model)


def recorded_from_the_run() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module.ModelTest, "recorded_error")
        def recorded_error(original: Any, self: Any, output: str, recorded: Any, scale: float) -> Any:
            took_effect()
            got = self.run(self.inputs).arrays[output]
            return original(self, output, {place: float(got[place]) for place in recorded}, scale)


def limit_of_a_thousand() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module, "tolerance_for")
        def tolerance_for(original: Any, *args: Any, **more: Any) -> Any:
            import dataclasses

            took_effect()
            return dataclasses.replace(original(*args, **more), limit=1000.0)


def _around_each_test(run: Callable[..., None]) -> None:
    """Replace how pytest runs a test's body by `run(original, item)`."""

    @after_import("_pytest.python")
    def patch(module: ModuleType) -> None:
        wrap(module.Function, "runtest")(run)


def assertions_skipped() -> None:
    @_around_each_test
    def run(original: Any, item: Any) -> None:
        try:
            original(item)
        except AssertionError:
            took_effect()


def bodies_emptied() -> None:
    @_around_each_test
    def run(_original: Any, item: Any) -> None:
        took_effect()


def comparing_bodies_emptied() -> None:
    @_around_each_test
    def run(original: Any, item: Any) -> None:
        if item.name in ("test_builds", "test_runs_natively"):
            original(item)
        else:
            took_effect()


def checks_skipped() -> None:
    @_around_each_test
    def run(original: Any, item: Any) -> None:
        import pytest

        try:
            original(item)
        except AssertionError:
            took_effect()
            pytest.skip("flaky")


def failures_expected() -> None:
    @after_import("_pytest.python")
    def patch(module: ModuleType) -> None:
        @wrap(module.Function, "setup")
        def setup(original: Any, self: Any) -> None:
            import pytest

            took_effect()
            self.add_marker(pytest.mark.xfail(strict=False))
            original(self)


def errors_of_zero() -> None:
    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module, "compare")
        def compare(original: Any, *args: Any, **more: Any) -> Any:
            import dataclasses

            took_effect()
            return dataclasses.replace(original(*args, **more), max_rel_error=0.0, max_abs_error=0.0)


def outcomes_written_as_passed() -> None:
    @after_import("hwcompat.hardware.evidence.writer")
    def patch(module: ModuleType) -> None:
        @wrap(module.EvidenceWriter, "write")
        def write(original: Any, self: Any, line: Any) -> None:
            import dataclasses

            if getattr(line, "outcome", "") == "failed":
                took_effect()
                line = dataclasses.replace(
                    line, outcome=type(line.outcome)("passed"), error_type="", error_message=""
                )
            original(self, line)


def lines_that_fail_unwritten() -> None:
    @after_import("hwcompat.hardware.evidence.writer")
    def patch(module: ModuleType) -> None:
        @wrap(module.EvidenceWriter, "write")
        def write(original: Any, self: Any, line: Any) -> None:
            if getattr(line, "outcome", "") == "failed":
                took_effect()
            else:
                original(self, line)


def ended_after_the_first_check() -> None:
    @after_import(_PLUGIN)
    def patch(module: ModuleType) -> None:
        @wrap(module.Recorder, "pytest_runtest_setup")
        def pytest_runtest_setup(original: Any, self: Any, item: Any) -> None:
            if item.name != "test_builds":
                took_effect()
                os._exit(0)
            original(self, item)


def suite_of_another_model() -> None:
    """Break the model of the suite, and take the numbers from an unbroken copy."""

    @after_import(_MODEL_TEST)
    def patch(module: ModuleType) -> None:
        @wrap(module.ModelTest, "_run")
        def run(original: Any, self: Any, runnable: Any, inputs: Any) -> Any:
            took_effect()
            return self.reference(inputs)


def model_of_zeros() -> None:
    @after_import("hwcompat.hardware.backends._torch")
    def patch(module: ModuleType) -> None:
        @wrap(module.TorchBackend, "load")
        def load(original: Any, self: Any, subject: Any, *rest: Any) -> Any:
            _answer_with(subject.model, lambda _inputs, outputs: _each(outputs, lambda one: one * 0))
            return original(self, subject, *rest)


def model_that_replays() -> None:
    @after_import("hwcompat.hardware.backends._torch")
    def patch(module: ModuleType) -> None:
        @wrap(module.TorchBackend, "load")
        def load(original: Any, self: Any, subject: Any, *rest: Any) -> Any:
            import copy

            sound = copy.deepcopy(subject.model)
            _break(subject.model)
            subject.model.register_forward_hook(
                lambda _model, args, given, _outputs: _told(sound(*args, **given)), with_kwargs=True
            )
            return original(self, subject, *rest)


def model_that_remembers() -> None:
    seen: dict[Any, Any] = {}

    def first(given: Any, outputs: Any) -> Any:
        shapes = tuple((name, tuple(one.shape)) for name, one in given.items() if hasattr(one, "shape"))
        return seen.setdefault(shapes, outputs)

    @after_import("hwcompat.hardware.backends._torch")
    def patch(module: ModuleType) -> None:
        @wrap(module.TorchBackend, "load")
        def load(original: Any, self: Any, subject: Any, *rest: Any) -> Any:
            _answer_with(subject.model, first)
            return original(self, subject, *rest)


def _told(outputs: Any) -> Any:
    took_effect()
    return outputs


def _answer_with(model: Any, change: Any) -> None:
    def hook(_model: Any, _args: Any, given: Any, outputs: Any) -> Any:
        took_effect()
        return change(given, outputs)

    model.register_forward_hook(hook, with_kwargs=True)


def _each(outputs: Any, change: Any) -> Any:
    import torch

    for name, value in list(outputs.items()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            outputs[name] = change(value)
    return outputs
