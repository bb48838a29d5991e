"""Device probes: a sound device computes as IEEE 754 says; faults and less exact arithmetic are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hwcompat.cli.main_program import main
from hwcompat.hardware.backends.cpu import CPUBackend
from hwcompat.hardware.operators import device_probe
from hwcompat.hardware.operators.device_probe import CRASHED, ProbeAnswer, probe_device, questions
from hwcompat.hardware.target import Target
from hwcompat.reports.operator_tables import probe_text

CPU = Target(name="cpu")


class Computed:
    """A device that computes on the CPU, and changes inputs and results of each module."""

    def __init__(self, given: Callable[[Any], Any] = lambda x: x, result: Callable[[Any], Any] = lambda x: x) -> None:
        self.given, self.result = given, result

    def load(self, subject: Any, example: Any, precision: str) -> Any:
        runnable = CPUBackend(CPU).load(subject, example, precision)
        device = self

        class Changed:
            def __call__(self, **inputs: Any) -> dict[str, Any]:
                found = runnable(**{name: device.given(one) for name, one in inputs.items()})
                return {name: device.result(one) for name, one in found.items()}

            def close(self) -> None:
                runnable.close()

        return Changed()


def asked(name: str, **how: Any) -> tuple[str, str]:
    return device_probe._ASK[name](device_probe._Prober(Computed(**how)))  # type: ignore[arg-type]


def in_dtype(dtype: torch.dtype) -> Callable[[Any], Any]:
    def rounded(array: Any) -> Any:
        return torch.as_tensor(array).to(dtype).to(torch.float32).numpy() if array.dtype.kind == "f" else array

    return rounded


def tf32(array: Any) -> Any:
    if array.dtype.kind != "f":
        return array
    fraction, exponent = np.frexp(array)
    return np.ldexp(np.round(fraction * 2**11) / 2**11, exponent).astype(np.float32)


def without(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: np.where(kind(x), 0, x) if x.dtype.kind == "f" else x


def small(x: Any) -> Any:
    return np.abs(x) < np.finfo(np.float32).smallest_normal


def test_each_question_has_an_answer_with_a_meaning() -> None:
    assert list(device_probe._ASK) == list(questions())
    assert all(one["title"] and one["usual"] and one["meaning"] for one in questions().values())


@pytest.mark.parametrize("name", questions())
def test_a_processor_gives_the_usual_answers(name: str) -> None:
    assert asked(name)[0] in questions()[name]["usual"]


@pytest.mark.parametrize(
    ("name", "how", "value"),
    [
        ("matmul", {"given": tf32}, "tf32"),
        ("matmul", {"given": in_dtype(torch.float16)}, "float16"),
        ("convolution", {"given": in_dtype(torch.bfloat16)}, "bfloat16"),
        ("convolution", {"result": lambda x: x * 1.5}, "unknown"),
        ("accumulation", {"result": lambda x: np.minimum(x, 2048)}, "float16"),
        ("accumulation", {"result": lambda x: np.minimum(x, 256)}, "bfloat16"),
        ("accumulation", {"result": in_dtype(torch.float16)}, "float32"),
        ("subnormals", {"result": without(small)}, "flushed"),
        ("subnormals", {"given": without(small)}, "flushed"),
        ("fused", {"result": lambda x: x * 0 + 2.0**-24}, "fused"),
        ("fused", {"result": lambda x: x + 2.0**-11}, "less"),
        ("rounding", {"result": lambda x: np.sign(x) * (np.abs(x) - 2.0**-23)}, "less"),
        ("rounding", {"result": in_dtype(torch.bfloat16)}, "less"),
        ("special", {"result": without(np.isnan)}, "lost"),
        ("special", {"result": without(np.isinf)}, "lost"),
        ("integers", {"given": lambda x: x.astype(np.int32).astype(np.int64)}, "64 bits"),
        ("integers", {"given": lambda x: x.astype(np.float32).astype(np.int64)}, "24 bits"),
        ("views", {"result": lambda x: x[::-1]}, "wrong"),
        ("sizes", {"result": lambda x: np.where(np.arange(x.shape[1]) < x.shape[1] // 32 * 32, x, 0)}, "wrong"),
    ],
)
def test_other_arithmetic_and_faults_are_named(name: str, how: dict[str, Any], value: str) -> None:
    assert asked(name, **how)[0] == value


def test_a_device_that_gives_other_bits_is_named() -> None:
    random = np.random.default_rng(0)
    found = asked("repeats", result=lambda x: x + 1e-7 * random.standard_normal(x.shape))
    assert found[0] == "differ"


def test_results_in_another_order_of_outputs_are_put_in_order() -> None:
    assert sorted(["output_10", "output_2", "output_0"], key=device_probe._place) == [
        "output_0",
        "output_2",
        "output_10",
    ]


def test_a_crash_is_one_answer_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HWCOMPAT_SIMULATED_FAULT", "crash:aten.convolution")
    found = {one.name: one for one in probe_device(Target(name="simulated"))}
    assert list(found) == list(questions())
    assert [name for name, one in found.items() if one.value == CRASHED] == ["convolution"]
    assert found["convolution"].is_fault
    assert found["matmul"].value == "float32"
    assert not found["sizes"].is_fault


def test_the_command_prints_what_it_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = ProbeAnswer(
        name="matmul", title="Products", value="tf32", usual=False, detail="d", meaning="explains m"
    )
    wrong = ProbeAnswer(name="views", title="Views", value="wrong", usual=False)
    monkeypatch.setattr(device_probe, "probe_device", lambda target: [rounded])
    assert main(["devices", "probe", "cpu"]) == 0
    assert "Products: explains m." in capsys.readouterr().out
    monkeypatch.setattr(device_probe, "probe_device", lambda target: [rounded, wrong])
    assert main(["devices", "probe", "cpu", "--format", "json"]) == 1
    (first, second) = json.loads(capsys.readouterr().out)["answers"]
    assert (first["value"], first["is_fault"], second["is_fault"]) == ("tf32", False, True)
    assert "| Products | tf32 \\* | d |" in probe_text(CPU, [rounded], "markdown")
    assert main(["devices", "probe", "nothing"]) == 4
    monkeypatch.undo()
    assert main(["devices", "probe", "cuda"]) == 1
