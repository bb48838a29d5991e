"""Cerebras' wafer-scale engines. They are appliances on the network: a user node has a configuration and an SDK.

Nothing is reached over the network, so a machine never lists one: it is said to be configured, and for which system.
"""

from __future__ import annotations

from ..machine import Reading
from ..values import table, whole, words
from ._cerebras import ClusterConfig
from ._listed import ListedAccelerators
from ._packages import Packages
from .base import AcceleratorInfo, DriverState, HardwareState, LibraryState, VendorFacts

_SYSTEMS = {"cs2": "CS-2 with a WSE-2", "cs3": "CS-3 with a WSE-3"}
_PACKAGES = ("cerebras_appliance", "cerebras_sdk", "cerebras_pytorch")


class CerebrasAccelerators(ListedAccelerators):
    """What a user node tells of its cluster. No framework names a device: a whole model is compiled for it."""

    VENDOR_NAME = "Cerebras"
    DEVICE_TYPE = "wse"

    def find(self) -> tuple[AcceleratorInfo, ...]:
        return ()

    def facts(self) -> VendorFacts:
        version = self._sdk()
        cluster = self._cluster()
        told = table(cluster.value)
        if told:
            fabric = words(told.get("fabric"))
            count = whole(told.get("namespaces"))
            spaces = "" if count is None else f", {count} namespace{'' if count == 1 else 's'}"
            where = f"a cluster of {_SYSTEMS.get(fabric, fabric or 'unknown systems')} is configured{spaces}"
            reason = f"{where}; it is on the network and isn't reached from here"
        else:
            reason = cluster.reason or "no cluster is configured"
        hardware = HardwareState.UNKNOWN if told else HardwareState.ABSENT
        return VendorFacts(
            vendor=self.VENDOR_NAME,
            hardware=hardware,
            driver=DriverState.UNKNOWN,
            library=LibraryState.OK if version.value else LibraryState.MISSING if told else LibraryState.UNKNOWN,
            reason="; ".join(filter(None, [reason, version.reason if told else ""])),
        )

    def _cluster(self) -> Reading[dict[str, str | int]]:
        return self.machine.library(ClusterConfig).ask("cluster")

    def _sdk(self) -> Reading[str]:
        packages = self.machine.library(Packages)
        told = [packages.ask("version", name) for name in _PACKAGES]
        found = next((one for one in told if one.value), None)
        return found or Reading(
            value=None, reason="none of the SDK's packages is installed: pip install cerebras_sdk"
        )
