"""hwcompat tests whether a model works on a device. The names of `__all__` are the public API; they are imported on
first use, so that `import hwcompat` is fast and needs neither torch nor transformers.

`hwcompat.hardware`, `hwcompat.generators` and `hwcompat.reports` are in this folder if the package is installed. In a
checkout they are the folders beside it.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not Path(__file__).with_name("hardware").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

if TYPE_CHECKING:
    from .generators.compatibility.judge import judge as judge
    from .generators.compatibility.verdict import Level as Level
    from .generators.compatibility.verdict import Verdict as Verdict
    from .generators.models.classifier import classify_model as classify_model
    from .generators.run import plan_job as plan_job
    from .generators.run import run_job as run_job
    from .generators.run import write_suites as write_suites
    from .hardware.backends import BackendFactory as BackendFactory
    from .hardware.backends import BackendType as BackendType
    from .hardware.backends import BaseBackend as BaseBackend
    from .hardware.backends import DeviceInfo as DeviceInfo
    from .hardware.backends import OptimizationLevel as OptimizationLevel
    from .hardware.backends import detect_best_backend as detect_best_backend
    from .hardware.backends import get_backend as get_backend
    from .hardware.backends import get_optimizer as get_optimizer
    from .hardware.backends import list_available_backends as list_available_backends
    from .hardware.cell import Cell as Cell
    from .hardware.detection import detect as detect
    from .hardware.evidence.latest import read_latest as read_latest
    from .hardware.inventory.vendors import ACCELERATOR_BACKENDS as ACCELERATOR_BACKENDS
    from .hardware.inventory.vendors import get_accelerator_backend as get_accelerator_backend
    from .hardware.inventory.vendors import get_accelerator_backend_by_index as get_accelerator_backend_by_index
    from .hardware.inventory.vendors import get_all_accelerator_backends as get_all_accelerator_backends
    from .hardware.inventory.vendors import get_backend_count as get_backend_count
    from .hardware.inventory.vendors import list_available_vendors as list_available_vendors
    from .hardware.inventory.vendors.vendor import AcceleratorBackend as AcceleratorBackend
    from .hardware.inventory.vendors.vendor import AcceleratorInfo as AcceleratorInfo
    from .hardware.target import Target as Target
    from .hardware.testing.model_test import ModelTest as ModelTest
    from .plugins.placement.adapter import HardwareAdapter as HardwareAdapter
    from .plugins.placement.adapter import auto_detect_best_adapter as auto_detect_best_adapter
    from .reports.reporter import HardwareCompatibilityReporter as HardwareCompatibilityReporter

_MODULES = {
    "ACCELERATOR_BACKENDS": "hardware.inventory.vendors",
    "AcceleratorBackend": "hardware.inventory.vendors.vendor",
    "AcceleratorInfo": "hardware.inventory.vendors.vendor",
    "BackendFactory": "hardware.backends",
    "BackendType": "hardware.backends",
    "BaseBackend": "hardware.backends",
    "Cell": "hardware.cell",
    "DeviceInfo": "hardware.backends",
    "HardwareAdapter": "plugins.placement.adapter",
    "HardwareCompatibilityReporter": "reports.reporter",
    "Level": "generators.compatibility.verdict",
    "ModelTest": "hardware.testing.model_test",
    "OptimizationLevel": "hardware.backends",
    "Target": "hardware.target",
    "Verdict": "generators.compatibility.verdict",
    "auto_detect_best_adapter": "plugins.placement.adapter",
    "classify_model": "generators.models.classifier",
    "detect": "hardware.detection",
    "detect_best_backend": "hardware.backends",
    "get_accelerator_backend": "hardware.inventory.vendors",
    "get_accelerator_backend_by_index": "hardware.inventory.vendors",
    "get_all_accelerator_backends": "hardware.inventory.vendors",
    "get_backend": "hardware.backends",
    "get_backend_count": "hardware.inventory.vendors",
    "get_optimizer": "hardware.backends",
    "judge": "generators.compatibility.judge",
    "list_available_backends": "hardware.backends",
    "list_available_vendors": "hardware.inventory.vendors",
    "plan_job": "generators.run",
    "read_latest": "hardware.evidence.latest",
    "run_job": "generators.run",
    "write_suites": "generators.run",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
