"""Target `mychip`: a backend from outside the repository, for a device that its vendor registers with torch."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import vendor_mychip

from hardware.plugin import BackendUnavailable, DeviceInfo, LedgerBackend


class MyChipBackend(LedgerBackend):
    """Nothing but what is the chip's own: how it is found, what it is called, and what proves that it computed."""

    BACKEND_NAME = "mychip"
    DEVICE_TYPE = "mychip"
    INDEXED = False
    EXPIRES_ON: ClassVar[tuple[str, ...]] = (*LedgerBackend.EXPIRES_ON, "hwcompat-mychip")
    SIMULATED: ClassVar[bool] = True  # the example's kernels are the host's; a real chip leaves this out
    UNSEEN: ClassVar[str] = "everything physical: the example's kernels are the host's"

    @property
    def ledger(self) -> Counter[str]:
        return vendor_mychip.launched

    def torch_device(self) -> Any:
        vendor_mychip.register()
        return super().torch_device()

    def _device_missing(self, torch: Any) -> str:
        try:
            vendor_mychip.register()
        except BackendUnavailable as error:
            return error.why
        return ""

    def _get_device_info(self, device_id: int) -> DeviceInfo:
        return self.device_info("mychip:0", "My Chip (an example)")
