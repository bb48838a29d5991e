"""`Target`: where a model runs, parsed from and printed as text; and hardware vendors."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from .errors import UsageError, did_you_mean, echo

_TEXT = re.compile(
    r"(?P<name>[a-z][a-z0-9_]{0,31})"
    r"(?::(?P<number>\d{1,4})|:(?P<variant>[A-Za-z][A-Za-z0-9_-]{0,31})(?:\.(?P<unit>\d{1,4}))?)?"
)


@dataclass(frozen=True, kw_only=True, order=True)
class Target:
    """A target such as `cpu`, `cuda:1`, `openvino:NPU`, `openvino:GPU.1` or `webgpu:native`.

    `variant` changes the result and is part of a cell; `index` only selects a device and isn't.
    """

    name: str
    variant: str = ""
    index: int | None = None

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Target:
        """Return the target named `text`. Raises `UsageError` for an invalid one."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{echo(text)} is not a target",
                why="the format is name, name:index or name:variant",
                fix="For example: cpu, cuda:1, openvino:NPU.",
            )
        digits = match["number"] or match["unit"]
        return cls(name=match["name"], variant=match["variant"] or "", index=int(digits) if digits else None)

    @property
    def kind(self) -> Target:
        """Return the same target without its index, as in a cell."""
        return self if self.index is None else replace(self, index=None)

    def __str__(self) -> str:
        text = f"{self.name}:{self.variant}" if self.variant else self.name
        if self.index is None:
            return text
        return f"{text}.{self.index}" if self.variant else f"{text}:{self.index}"


class HardwareVendor(StrEnum):
    """The vendor of a device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"
    APPLE = "apple"
    QUALCOMM = "qualcomm"
    GOOGLE = "google"
    GROQ = "groq"
    CEREBRAS = "cerebras"
    HUAWEI = "huawei"
    AWS = "aws"
    HABANA = "habana"
    TENSTORRENT = "tenstorrent"
    REBELLIONS = "rebellions"
    XDNA = "xdna"
    CUSTOM_ASIC = "custom_asic"


def vendor_named(name: str | HardwareVendor) -> HardwareVendor:
    """Return the vendor with a name in any case. Raises `UsageError` for an unknown one."""
    text = str(name).strip().lower()
    if text not in list(HardwareVendor):
        fix = did_you_mean(text, map(str, HardwareVendor)) or f"Known: {', '.join(HardwareVendor)}."
        raise UsageError(f"{echo(str(name))} is not a vendor", fix=fix)
    return HardwareVendor(text)
