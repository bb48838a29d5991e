"""A device that TensorFlow computes on, in this Python or one of its own."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwcompat.hardware.backends.factory import vendor_of
from hwcompat.hardware.errors import BackendUnavailable
from hwcompat.hardware.files import ROOT
from hwcompat.hardware.inventory.vendors import VENDORS
from hwcompat.hardware.safe_read import is_plain_file

from .load_devices import RanElsewhere

if TYPE_CHECKING:
    import numpy.typing as npt

TENSORFLOW = "tensorflow"
PYTHON_VARIABLE = "HWCOMPAT_TENSORFLOW_PYTHON"
_HOST = "CPU"
_FIRST_TF32 = (8, 0)
"""The first compute capability with TF32: https://docs.nvidia.com/cuda/cuda-c-programming-guide/ ("Tensor cores")."""
_PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "int8")


def python_with_tensorflow() -> str:
    """Return the interpreter that has TensorFlow: the variable's, this one, or that of `.venv-tensorflow`; empty if
    there is none."""
    if named := os.environ.get(PYTHON_VARIABLE):
        return named if is_plain_file(Path(named)) else ""
    if importlib.util.find_spec(TENSORFLOW) is not None:
        return sys.executable
    own = ROOT / ".venv-tensorflow" / "bin" / "python"
    return str(own) if is_plain_file(own) else ""


def why_not_loaded(target: str) -> str:
    """Return why TensorFlow has no load for a target here; empty if it has."""
    if not _kind_of(target):
        return f"TensorFlow has no device for {target}"
    if python_with_tensorflow():
        return ""
    return f"TensorFlow isn't installed (pip install tensorflow, or set {PYTHON_VARIABLE})"


def _kind_of(target: str) -> str:
    """Return TensorFlow's kind of a target's devices (`CPU`, `GPU`); empty if it has none."""
    name = target.partition(":")[0]
    if name == "cpu":
        return _HOST
    vendors = VENDORS.load_all().found.values()
    strings = [dict(getattr(one, "DEVICE_STRINGS", {})) for one in vendors if vendor_of(name) == one.VENDOR_NAME]
    return next((one[TENSORFLOW].partition(":")[0] for one in strings if TENSORFLOW in one), "")


class TensorflowDevice:
    """A device of TensorFlow. Raises `BackendUnavailable` if it is absent."""

    COPY_ADDS = 1  # else TensorFlow returns the same tensor
    REFUSALS: tuple[type[Exception], ...]
    memory_bytes: int | None = None

    def __init__(self, target: str) -> None:
        index = target.partition(":")[2]
        self.tf: Any = importlib.import_module(TENSORFLOW)
        self.tf.experimental.numpy.experimental_enable_numpy_behavior()
        self.tf.config.set_soft_device_placement(False)
        self.tf.config.experimental.enable_tensor_float_32_execution(False)
        self.kind, self.index = _kind_of(target), int(index or 0)
        self.is_on_host = self.kind == _HOST
        self.REFUSALS = (self.tf.errors.OpError, TypeError, ValueError)
        found = self.tf.config.list_physical_devices(self.kind)
        if self.index >= len(found):
            raise BackendUnavailable(f"TensorFlow {self.tf.__version__} finds no {self.kind}:{self.index}")
        self.device = found[self.index]
        for one in found if not self.is_on_host else ():
            self.tf.config.experimental.set_memory_growth(one, True)  # else each process takes all memory of all GPUs
        self._details = self.tf.config.experimental.get_device_details(self.device)

    def identity(self) -> dict[str, Any]:
        """Return its name, and TensorFlow's version."""
        name = self._details.get("device_name") or f"TensorFlow's {self.kind}:{self.index}"
        return {"name": name, "index": self.index, TENSORFLOW: self.tf.__version__}

    def prepared(self, precision: str) -> str:
        """Set the arithmetic of products; return why there are none in this precision, empty if there are."""
        has_tf32 = self._details.get("compute_capability", (0, 0)) >= _FIRST_TF32
        if precision not in _PRECISIONS or (precision == "tf32" and not has_tf32):
            return f"{self.kind} doesn't support {precision}"
        self.tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
        return ""

    def _here(self) -> Any:
        return self.tf.device(f"/{self.kind}:{self.index}")

    def put(self, array: npt.NDArray[Any], precision: str = "") -> Any:
        """Copy an array into the device's memory, in a precision or as it is."""
        with self._here():
            dtype = {"": array.dtype.name, "tf32": "float32"}.get(precision, precision)
            return self.tf.cast(self.tf.identity(self.tf.constant(array)), dtype)

    def multiply(self, left: Any, right: Any, out: Any = None) -> Any:
        """Return the product, in a tensor of its own."""
        with self._here():
            wider = {"output_type": self.tf.int32} if left.dtype == self.tf.int8 else {}
            return self.tf.linalg.matmul(left, right, **wider)

    def copy(self, source: Any, out: Any) -> Any:
        """Return the array with `COPY_ADDS` added to each element, in a tensor of its own."""
        with self._here():
            return source + self.COPY_ADDS

    def wide(self, array: Any) -> Any:
        """Return the array in float32, on the device."""
        with self._here():
            return self.tf.cast(array, "float32")

    def host(self, array: Any) -> npt.NDArray[Any]:
        """Return the array in float64, on the host."""
        return np.asarray(array.numpy()).astype(np.float64)

    def wait(self, result: Any) -> None:
        """Wait until all is done."""
        self.tf.test.experimental.sync_devices()

    def prove(self, load: Any) -> None:
        """Raise `RanElsewhere` if a result isn't on the device. TensorFlow raises an error of its own for an operator
        that the device lacks, since soft placement is off."""
        place = str(load.result.device)
        if not place.endswith(f"/device:{self.kind}:{self.index}"):
            raise RanElsewhere(f"a result is on {place or 'no device'} instead of {self.kind}:{self.index}")
