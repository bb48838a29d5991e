"""What a backend from outside the repository builds on; docs/ADDING_A_BACKEND.md says how.

`BaseBackend` is for any runtime, `TorchBackend` for a device that torch knows, `LaunchLogBackend` for one whose
kernels are Python's and whose driver counts them; `install` makes torch know such a device. Importing this imports no
runtime.
"""

from .backends._launch_log import LaunchLogBackend, LaunchLogRunnable
from .backends._torch import TorchBackend, TorchRunnable
from .backends.base import (
    BaseBackend,
    DeviceInfo,
    Execution,
    FileSubject,
    Generation,
    ModelSubject,
    Runnable,
    Unsupported,
)
from .errors import BackendUnavailable
from .privateuse1 import Driver, install
from .target import Target

__all__ = [
    "BackendUnavailable",
    "BaseBackend",
    "DeviceInfo",
    "Driver",
    "Execution",
    "FileSubject",
    "Generation",
    "LaunchLogBackend",
    "LaunchLogRunnable",
    "ModelSubject",
    "Runnable",
    "Target",
    "TorchBackend",
    "TorchRunnable",
    "Unsupported",
    "install",
]
