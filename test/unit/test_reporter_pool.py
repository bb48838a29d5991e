"""The reporter collects low memory and failed loads of the resource pool."""

from __future__ import annotations

import pytest

from hardware.errors import OutOfMemory
from hwcompat.plugins.placement.pool import ResourcePool, pool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading
from reports.finding import Severity
from reports.reporter import HardwareCompatibilityReporter


@pytest.fixture
def own_pool(monkeypatch) -> ResourcePool:
    """A global pool for one test, on a machine with memory to spare, with a budget of 1000 bytes."""
    spare = MemoryReading(total_bytes=10**9, free_bytes=10**9)
    one = ResourcePool(budgets={"cpu": 1000, "simulated": 1000}, memory=lambda device: spare)
    monkeypatch.setattr(pool, "_global", [one])
    return one


def test_low_memory_of_the_pool_is_a_remark_and_memory_pressure_a_warning(own_pool):
    one = HardwareCompatibilityReporter()
    assert one.collect_resource_pool_errors() == []
    with own_pool.lease("kept", "a", object, device="simulated", expected_bytes=790):
        assert one.collect_resource_pool_errors() == []
    with own_pool.lease("kept", "b", object, expected_bytes=850):
        (low,) = one.collect_resource_pool_errors()
    assert (low.hardware_type, low.error_type, low.severity) == ("cpu", "memory_pressure", Severity.INFO)
    assert "85 % of the pool's budget" in low.message
    with own_pool.lease("kept", "c", object, expected_bytes=950):
        findings = one.collect_resource_pool_errors()
    (pressure,) = [finding for finding in findings if finding.severity is Severity.WARNING]
    assert pressure.component == "resource_pool"
    assert "95 % of the pool's budget" in pressure.message
    assert any("Close other applications" in text for text in pressure.recommendations)


def test_a_load_that_failed_is_a_finding_with_its_reason(own_pool):
    def full() -> object:
        raise MemoryError("no 3 GB")

    def missing() -> object:
        raise ModuleNotFoundError("No module named 'sentencepiece'")

    for name, build in (("large", full), ("other", missing)):
        with pytest.raises((OutOfMemory, ModuleNotFoundError)):
            own_pool.get_model("bert", name, build, device="cpu")
    by_model = {one.model_name: one for one in HardwareCompatibilityReporter().collect_resource_pool_errors()}
    assert by_model["large"].error_type == "out_of_memory"
    assert "MemoryError: no 3 GB" in by_model["large"].message
    assert by_model["other"].error_type == "missing_dependency"
    assert "sentencepiece" in by_model["other"].message
    assert any("pip install" in text for text in by_model["other"].recommendations)
