"""What the vendor of a chip ships: a device called `mychip` in torch.

A vendor registers a library of C++. So that the example runs anywhere, this one's kernels are the host's, and
`hardware.backend_plugin` registers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hwcompat.hardware.backend_plugin import install

launched: Counter[str] = Counter()
"""What the chip has computed, by operator, as a vendor's driver counts it."""


class HostDriver:
    """Computes with the host's kernels."""

    def has_kernel(self, name: str) -> bool:
        """All operators."""
        return True

    def launch(self, operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """One operator, on tensors in the chip's memory."""
        launched[operator._schema.name.replace("aten::", "aten.")] += 1
        return operator(*args, **kwargs)


def register() -> None:
    """Make torch know the chip. Again is harmless."""
    install("mychip", HostDriver())
