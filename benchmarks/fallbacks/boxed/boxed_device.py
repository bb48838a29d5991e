"""Target `boxed`: a torch device with C++ kernels, registered from outside the product by an entry point.

`HWCOMPAT_BOXED_LEFT` lists operators, separated by commas, that use `at::native::cpu_fallback`; `*` means all.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
from pathlib import Path

from hardware.backend_plugin import BackendUnavailable, DeviceInfo, TorchBackend

NAME = "boxed"
LEFT = "HWCOMPAT_BOXED_LEFT"


def build(folder: Path) -> Path:
    """Compile the device into `folder` unless it exists: about a minute, with a C++ compiler."""
    from torch.utils.cpp_extension import load

    library = folder / "boxed_device.so"
    if not library.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        source = Path(__file__).with_name("boxed.cpp")
        # Elsewhere: a build that was killed leaves a lock behind, which the next one would wait for.
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            load("boxed_device", [str(source)], is_python_module=False, build_directory=aside, extra_cflags=["-O0"])
            os.replace(Path(aside) / library.name, library)
    return library


@functools.cache
def _registered() -> None:
    import torch

    from hardware.privateuse1 import device_module

    library = Path(os.environ.get("HWCOMPAT_BOXED_LIBRARY", ""))
    if not library.is_file():
        raise BackendUnavailable("there is no boxed device", why="HWCOMPAT_BOXED_LIBRARY names no file")
    torch.ops.load_library(library)
    ctypes.CDLL(str(library)).install(os.environ.get(LEFT, "").encode())
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, device_module(NAME))
    # torch makes new parameters on such a device, one for each name; swapped ones stay tied.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.utils.generate_methods_for_privateuse1_backend()


class BoxedBackend(TorchBackend):
    """The boxed device, which uses memory and kernels of the host."""

    BACKEND_NAME = NAME
    DEVICE_TYPE = NAME
    INDEXED = False
    SHARED = True

    def _register(self) -> None:
        _registered()

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("boxed:0", "a device made of C++ kernels on the host")
