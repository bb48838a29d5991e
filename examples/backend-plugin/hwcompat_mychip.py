"""Target `mychip`: a backend from outside the repository, for a device that its vendor registers with torch."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import vendor_mychip

from hwcompat.hardware.backend_plugin import DeviceInfo, LaunchLogBackend


class MyChipBackend(LaunchLogBackend):
    """Nothing but what is the chip's own: how it is found, what it is called, and what proves that it computed."""

    BACKEND_NAME = "mychip"
    DEVICE_TYPE = "mychip"
    INDEXED = False
    EXPIRES_ON: ClassVar[tuple[str, ...]] = (*LaunchLogBackend.EXPIRES_ON, "hwcompat-mychip")
    SIMULATED: ClassVar[bool] = True  # the example's kernels are the host's; a real chip leaves this out
    UNSEEN: ClassVar[str] = "everything physical: the example's kernels are the host's"

    @property
    def ledger(self) -> Counter[str]:
        return vendor_mychip.launched

    def _register(self) -> None:
        vendor_mychip.register()

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("mychip:0", "My Chip (an example)")
