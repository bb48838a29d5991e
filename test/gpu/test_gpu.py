"""Models on a real GPU, in every precision: `make test-gpu`. Skipped by name where there is none.

`--backend cpu` asks the same of another target of torch, which shows that the tests themselves hold.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suites_of_recipes import outcomes

from generators.models.inputs import make_inputs
from generators.models.recipe import Recipe
from generators.recipes import on_demand
from generators.recipes.build_model import build
from hardware import known_answer
from hardware.backends.base import BaseBackend, ModelInput, Runnable
from hardware.backends.factory import get_backend
from hardware.compare import compare, compare_gradients
from hardware.evidence.store import read_folder
from hardware.output_masks import masks_of
from hardware.testing import reference
from hardware.testing.seeded_weights import fill
from hardware.testing.tolerances import tolerance_for

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

GPUS = ("cuda", "rocm", "xpu", "mps")
MODELS = ("bert", "gpt2", "llama", "t5", "vit", "clip", "whisper", "resnet", "mixtral", "mamba")
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
STEPS = 4
REPOSITORY = Path(__file__).parents[2]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", metafunc.config.getoption("--backend") or GPUS, scope="module")


@pytest.fixture(scope="module")
def backend(name: str) -> BaseBackend:
    found = get_backend(name)
    if reason := found.unavailable():
        pytest.skip(f"{name}: {reason}")
    return found


@functools.cache
def recipe_for(model_type: str) -> Recipe:
    """The recipe that ships, or one derived here once: every test has a cache of its own."""
    return on_demand.recipe_for(model_type)


def filled(recipe: Recipe) -> Any:
    return fill(
        build(recipe.config_class, recipe.model_class, recipe.config),
        gain=recipe.gain,
        zero_centered=recipe.zero_centered,
    )


@contextmanager
def on_device(backend: BaseBackend, recipe: Recipe, precision: str = "float32") -> Iterator[tuple[Runnable, Any]]:
    if precision not in backend.PRECISIONS:
        pytest.skip(f"{backend.target} doesn't compute in {precision}")
    model, inputs = filled(recipe), dict(make_inputs(recipe.inputs, 0))
    subject = ModelInput(
        model=model,
        task=recipe.task,
        identity=reference.identity_of(model),
        generates=recipe.generate,
        masked_by=recipe.masked_by,
    )
    runnable = backend.load(subject, inputs, precision)
    try:
        yield runnable, inputs
    finally:
        runnable.close()


def error_of(backend: BaseBackend, recipe: Recipe, precision: str) -> float:
    """The largest error of the recipe's outputs against float64."""
    with on_device(backend, recipe, precision) as (runnable, inputs):
        got = runnable(**inputs)
    want = reference.float64_outputs(reference.as_reference(filled(recipe)), inputs)
    main = {output: want[output] for output in recipe.outputs}
    return compare(got, main, masks=masks_of(recipe.masked_by, inputs), required=main).max_rel_error


def test_it_gives_the_known_answer(backend: BaseBackend) -> None:
    assert known_answer.agrees(backend.known_answer())


def test_it_says_what_it_is(backend: BaseBackend) -> None:
    info = backend.get_device_info()
    assert info.device_name
    assert info.total_memory_bytes is None or info.total_memory_bytes > 2**30
    assert isinstance(info.properties.get("bf16", False), bool)
    if backend.BACKEND_NAME == "cuda":
        assert info.driver_version
        assert info.compute_capability
        assert "fp8_supported" in info.properties


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model_type", MODELS)
def test_its_numbers_agree_with_float64(
    backend: BaseBackend, model_type: str, precision: str, tmp_path: Path
) -> None:
    if precision not in backend.PRECISIONS:
        pytest.skip(f"{backend.target} doesn't compute in {precision}")
    check, recipe = "matches_reference", recipe_for(model_type)
    found, _ = outcomes(model_type, precision, tmp_path, checks=(check,), recipe=recipe, on=str(backend.target))
    assert found == {check: "passed"}


def test_tf32_is_used_where_it_is_asked_for_and_nowhere_else(backend: BaseBackend) -> None:
    if "tf32" not in backend.PRECISIONS:
        pytest.skip(f"{backend.target} has no TF32")
    if backend.get_device_info().properties.get("bf16") is False:
        pytest.skip("TF32 came with compute capability 8.0, as bfloat16 did")
    recipe = recipe_for("bert")
    exact, rounded = error_of(backend, recipe, "float32"), error_of(backend, recipe, "tf32")
    assert exact < 2e-5 < rounded, "TF32 keeps 10 bits of mantissa"


@pytest.mark.parametrize("model_type", MODELS)
def test_nothing_runs_on_the_host(backend: BaseBackend, model_type: str) -> None:
    with on_device(backend, recipe_for(model_type)) as (runnable, _):
        proof = runnable.execution()
    assert sum(proof.native.values()) > 0
    assert not proof.beyond_allowed
    assert proof.dtype == "float32"


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "t5", "mixtral"])
def test_it_decodes_as_the_reference_does(backend: BaseBackend, model_type: str) -> None:
    recipe = recipe_for(model_type)
    with on_device(backend, recipe) as (runnable, inputs):
        tokens = runnable.generate(inputs, steps=STEPS).tokens
    exact = reference.as_reference(filled(recipe))
    assert np.array_equal(tokens, reference.float64_generation(exact, inputs, steps=STEPS).tokens)


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "vit", "resnet"])
def test_its_gradients_agree_with_float64(backend: BaseBackend, model_type: str) -> None:
    recipe = recipe_for(model_type)
    with on_device(backend, recipe) as (runnable, inputs):
        got = runnable.gradients(inputs)
    want = reference.float64_gradients(reference.as_reference(filled(recipe)), inputs, recipe.masked_by)
    assert compare_gradients(got, want).max_rel_error < tolerance_for(backend.target, "float32").limit


def test_the_main_job_passes_there(backend: BaseBackend, tmp_path: Path) -> None:
    words = ["--model", "bert", "--model", "gpt2", "--device", str(backend.target), "--run", "--output-dir", "suites"]
    ran = subprocess.run(
        [sys.executable, str(REPOSITORY / "run_test_generation.py"), *words, "--evidence", "evidence"],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = read_folder(tmp_path / "evidence").checks
    assert {str(line.actual_target) for line in lines} == {str(backend.target)}
    assert sum(line.outcome == "passed" for line in lines) >= 12
