"""The contract of a backend. Each backend gets its own process, because torch accepts a device made in Python only
before its first backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwcompat.generators.models.inputs import make_inputs
from hwcompat.generators.recipes.build_model import filled_model
from hwcompat.generators.recipes.on_demand import recipe_for
from hwcompat.hardware import known_answer
from hwcompat.hardware.backends.base import BaseBackend, ModelInput, Runnable, Unsupported
from hwcompat.hardware.backends.factory import get_backend, known_targets
from hwcompat.hardware.compare import compare, compare_gradients
from hwcompat.hardware.errors import BackendUnavailable
from hwcompat.hardware.output_masks import masks_of
from hwcompat.hardware.target import Target
from hwcompat.hardware.testing import reference
from hwcompat.hardware.testing.contract.contract_options import asked_for
from hwcompat.hardware.testing.tolerances import tolerance_for
from hwcompat.hardware.testing.watched_passes import WatchedPasses

STEPS = 4
OTHER_LENGTHS = (9, 5)
"""Lengths of the two rows of a second batch, shorter than those of the example."""
NOT_THERE = (NotImplementedError, Unsupported)
"""Exceptions of a runnable for unsupported operations."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests once for each backend."""
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", asked_for(metafunc.config, "backend"), scope="module")


@pytest.fixture(scope="module")
def backend(name: str) -> Iterator[BaseBackend]:
    """The backend under test. One that can't be used here fails with its own reason."""
    with get_backend(name) as found:
        if reason := found.unavailable():
            pytest.fail(f"{name} can't be used here, so the contract isn't tested: {reason}", pytrace=False)
        yield found


def model_input_of(model_type: str) -> tuple[ModelInput, dict[str, Any], Any]:
    """Return a tiny model of a type with seeded test weights, its example inputs, and its recipe."""
    recipe = recipe_for(model_type)
    assert recipe.gain is not None, f"the recipe of {model_type} has weights of its own"
    model = filled_model(recipe)
    model_input = ModelInput(
        model=model,
        task=recipe.task,
        identity=reference.identity_of(model),
        generates=recipe.generate,
        masked_by=recipe.masked_by,
    )
    return model_input, dict(make_inputs(recipe.inputs, 0)), recipe


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def loaded(request: pytest.FixtureRequest, backend: BaseBackend) -> Iterator[tuple[Runnable, dict[str, Any], Any]]:
    """A tiny model on the backend, its example inputs and its recipe."""
    model_input, inputs, recipe = model_input_of(request.param)
    runnable = backend.load(model_input, inputs, "float32")
    yield runnable, inputs, recipe
    runnable.close()


def exact(recipe: Any) -> Any:
    """The same model in float64 on the CPU."""
    return reference.as_reference(filled_model(recipe))


def test_it_is_known_by_its_name(name: str) -> None:
    """Its name is its target, and it reports whether it can be used."""
    target = Target.parse(name)
    assert target.name in known_targets()
    backend = get_backend(name)
    assert target.name == backend.BACKEND_NAME
    assert target == backend.target
    assert isinstance(backend.unavailable(), str)
    assert backend.is_available is not bool(backend.unavailable())


def test_it_gives_the_known_answer(backend: BaseBackend) -> None:
    """Three known numbers are computed correctly."""
    assert known_answer.agrees(backend.known_answer())


def test_its_device_can_be_asked_for_and_no_other(backend: BaseBackend) -> None:
    """It has a device, describes it, and refuses one that is not there."""
    assert backend.device_count >= 1
    info = backend.get_device_info()
    assert info.backend == backend.BACKEND_NAME
    assert info.device_name
    assert info.to_dict()["device_id"] == backend.device_id
    with pytest.raises(BackendUnavailable):
        backend.set_device(backend.device_count)
    backend.synchronize()
    backend.empty_cache()


def test_a_precision_that_it_does_not_have_is_refused(backend: BaseBackend) -> None:
    """It never computes in another precision than the requested one."""
    model_input, inputs, _ = model_input_of("bert")
    assert "float32" in backend.PRECISIONS
    with pytest.raises(Unsupported):
        backend.load(model_input, inputs, "float8_nobody_has")


def test_it_declares_what_evidence_depends_on(backend: BaseBackend) -> None:
    """It has a tolerance for each of its precisions, versions that expire its evidence, and a deadline."""
    assert all(tolerance_for(backend.target, precision).limit > 0 for precision in backend.PRECISIONS)
    assert backend.EXPIRES_ON
    assert backend.DEADLINE_S > 0
    assert all(setting["reason"] for setting in backend.settings.to_dict().values())


def test_it_says_what_it_computes_in_and_under_which_conditions(backend: BaseBackend, loaded: Any) -> None:
    """The precision is the requested one, or the one that the backend declares instead; conditions are texts."""
    runnable, _, _ = loaded
    assert runnable.actual_dtype == backend.COMPUTES_IN.get("float32", "float32")
    assert all(isinstance(one, str) for pair in runnable.conditions.items() for one in pair)


def test_it_computes_after_a_reset(backend: BaseBackend) -> None:
    """It gives the known answer after a reset, or reports that it can't be reset."""
    if backend.reset():
        assert known_answer.agrees(backend.known_answer())
    else:
        assert backend.reset() is False


def test_it_computes_what_the_reference_computes(backend: BaseBackend, loaded: Any) -> None:
    """Outputs agree with float64 at two lengths and are repeatable; inputs stay unchanged."""
    runnable, inputs, recipe = loaded
    for given in (inputs, dict(make_inputs(recipe.inputs, 7, OTHER_LENGTHS))):
        before = {key: array.copy() for key, array in given.items()}
        got = runnable(**given)
        want = reference.float64_outputs(exact(recipe), given)
        main = {output: want[output] for output in recipe.outputs}
        error = compare(got, main, masks=masks_of(recipe.masked_by, given), required=main).max_rel_error
        assert error < tolerance_for(backend.target, "float32").limit
        assert all(np.array_equal(given[key], before[key]) for key in before), "a backend must not change its inputs"
        again = runnable(**given)
        assert all(np.allclose(got[output], again[output], rtol=0, atol=1e-3) for output in main)


def test_it_proves_where_it_ran(backend: BaseBackend, loaded: Any) -> None:
    """Operators ran on the device, and none beyond its list on the host, at two lengths."""
    runnable, inputs, recipe = loaded
    proof = runnable.execution()
    assert sum(proof.native.values()) > 0
    assert not proof.beyond_allowed
    assert proof.dtype
    assert proof.device
    assert isinstance(proof.unseen, str)
    for given in (inputs, dict(make_inputs(recipe.inputs, 7, OTHER_LENGTHS))):
        left = WatchedPasses().run(runnable, given).left
        assert set(left) <= backend.HOST_ALLOWED


def test_it_can_save_where_it_says_so(backend: BaseBackend, loaded: Any, tmp_path: Path) -> None:
    """A saved model gives the same outputs; a backend that can't save refuses."""
    runnable, inputs, recipe = loaded
    assert runnable.can <= backend.CAN
    if "save" not in runnable.can:
        with pytest.raises(NOT_THERE):
            runnable.save_and_reload(tmp_path)
        return
    again = runnable.save_and_reload(tmp_path)
    got, want = again(**inputs), runnable(**inputs)
    again.close()
    error = compare(got, want, masks=masks_of(recipe.masked_by, inputs)).max_rel_error
    assert error < tolerance_for(backend.target, "float32").limit


def test_it_decodes_where_it_says_so(loaded: Any) -> None:
    """Decoding gives the tokens of the reference; a backend that can't decode refuses."""
    runnable, inputs, recipe = loaded
    if "generate" not in runnable.can:
        with pytest.raises(NOT_THERE):
            runnable.generate(inputs, steps=STEPS)
    elif recipe.generate != "none":
        tokens = runnable.generate(inputs, steps=STEPS).tokens
        want = reference.float64_generation(exact(recipe), inputs, steps=STEPS).tokens
        assert np.array_equal(tokens, want)


def test_it_learns_where_it_says_so(backend: BaseBackend, loaded: Any) -> None:
    """Gradients agree with float64; a backend that can't compute them refuses."""
    runnable, inputs, recipe = loaded
    if "backward" not in runnable.can:
        with pytest.raises(NOT_THERE):
            runnable.gradients(inputs)
        return
    want = reference.float64_gradients(exact(recipe), inputs, recipe.masked_by)
    error = compare_gradients(runnable.gradients(inputs), want).max_rel_error
    assert error < tolerance_for(backend.target, "float32").limit
