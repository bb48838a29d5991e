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
    from .hardware.cell import Cell as Cell
    from .hardware.detection import detect as detect
    from .hardware.evidence.latest import read_latest as read_latest
    from .hardware.target import Target as Target
    from .hardware.testing.model_test import ModelTest as ModelTest
    from .reports.reporter import HardwareCompatibilityReporter as HardwareCompatibilityReporter

_MODULES = {
    "Cell": "hardware.cell",
    "HardwareCompatibilityReporter": "reports.reporter",
    "Level": "generators.compatibility.verdict",
    "ModelTest": "hardware.testing.model_test",
    "Target": "hardware.target",
    "Verdict": "generators.compatibility.verdict",
    "classify_model": "generators.models.classifier",
    "detect": "hardware.detection",
    "judge": "generators.compatibility.judge",
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
