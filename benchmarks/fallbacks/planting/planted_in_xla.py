"""A fallback of XLA: an operator computed on the host inside a compiled program.

torch_xla counts such operators as `aten::`. torchax has no fallback: an operator without a lowering raises. What
would be one here is a lowering that calls the host, and that is planted: nothing raises, and all numbers are right.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from planting_tools import after_import


def xla_counter() -> None:
    @after_import("hwcompat.hardware.backends.tpu")
    def patch(module: ModuleType) -> None:
        module.TPUBackend.SCRIPT = Path(__file__).with_name("planted_xla_worker.py")
