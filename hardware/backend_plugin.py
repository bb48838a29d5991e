"""The public API for a backend plugin; see docs/ADDING_A_BACKEND.md.

`BaseBackend` is for any runtime, `TorchBackend` for a device that torch supports, `LaunchLogBackend` for a device
whose kernels are written in Python and whose driver counts them; `install` registers such a device with torch.
Importing this module imports no runtime.
"""

from .backends._launch_log import LaunchLogBackend, LaunchLogRunnable
from .backends._torch import TorchBackend, TorchRunnable
from .backends.base import (
    BaseBackend,
    DeviceInfo,
    Execution,
    FileInput,
    Generation,
    ModelInput,
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
    "FileInput",
    "Generation",
    "LaunchLogBackend",
    "LaunchLogRunnable",
    "ModelInput",
    "Runnable",
    "Target",
    "TorchBackend",
    "TorchRunnable",
    "Unsupported",
    "install",
]
