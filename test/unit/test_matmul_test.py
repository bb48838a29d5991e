"""A stress test of one device as a call: what is measured, skipped and refused."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_machines import machine as recorded

from hardware.errors import UsageError
from hardware.inventory.vendors.nvidia import NvidiaAccelerators
from hwcompat.plugins.stress.matmul_test import AcceleratorMatMulTest
from hwcompat.plugins.stress.stress_result import StressEnding


def test_a_matrix_product_test_is_a_call() -> None:
    result = AcceleratorMatMulTest("cpu", burnin_seconds=0).run(0.2)
    assert (result.ending, result.target, result.sustained) == (StressEnding.MEASURED, "cpu", "float32")
    assert result.device_name
    assert (result.tflops or 0) > 0
    assert AcceleratorMatMulTest(NvidiaAccelerators(recorded("groq/groqnode"))).backend == "nvidia"
    absent = AcceleratorMatMulTest("cerebras").run(1)
    assert (absent.ending, absent.tflops) == (StressEnding.SKIPPED, None)
    assert absent.reason.startswith("no load")
    wrong: Any = 3
    for make in (
        lambda: AcceleratorMatMulTest(wrong),
        lambda: AcceleratorMatMulTest("cpu", -1),
        lambda: AcceleratorMatMulTest("cpu", precision="float7"),
        lambda: AcceleratorMatMulTest("cpu", 1).run(1),
        lambda: AcceleratorMatMulTest("cpu").run(0),
        lambda: AcceleratorMatMulTest("gpuu").run(1),
    ):
        with pytest.raises(UsageError):
            make()
