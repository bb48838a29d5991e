"""Cerebras' wafer-scale engines: network appliances that a user node reaches with a configuration and an SDK.

The network isn't used: the system of the configured cluster is listed without an index, and isn't counted. The
configuration holds addresses, names and certificates, which never leave this module. Source of its shape:
cerebras/appliance/cluster/config.py in the Python package cerebras_appliance 2.10.0.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...machine import Library, SourceReading
from ...values import from_json, table, tables, whole, words
from ._lazy_library import Packages
from ._sources import ListedAccelerators
from .vendor import AcceleratorInfo, HardwareState, LibraryState, VendorFacts

DEFAULT_FILE = "/opt/cerebras/config_v2"
FILE_VARIABLE = "CSCONFIG_PATH"
_DEFAULT_FABRIC = "cs2"
_MOST_BYTES = 2**20
_SYSTEMS = {"cs2": "CS-2 with a WSE-2", "cs3": "CS-3 with a WSE-3"}
_NOT_CONTACTED = "it is on the network, and is not contacted"
_PACKAGES = ("cerebras_appliance", "cerebras_sdk", "cerebras_pytorch")


class ClusterConfig(Library):
    """The configuration of a cluster. The cluster itself isn't reached."""

    NAME = "cerebras_config"

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        """Return for `cluster` its `fabric` (`cs2`, `cs3`) and the number of this user's `namespaces`."""
        named = os.environ.get(FILE_VARIABLE)
        path = Path(named or DEFAULT_FILE)
        where = f"the file that {FILE_VARIABLE} names" if named else DEFAULT_FILE
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
        except OSError as error:
            return SourceReading(value=None, reason=f"no cluster is configured: {where}: {error.strerror}")
        return read_cluster(text, where)


def read_cluster(text: str, where: str) -> SourceReading[Any]:
    """Return the cluster of the current context."""
    config = table(from_json(text))
    contexts = {words(one.get("name")): words(one.get("cluster")) for one in tables(config.get("contexts"))}
    wanted = contexts.get(words(config.get("currentContext")), "")
    cluster = next(
        (one for one in tables(config.get("clusters")) if wanted and words(one.get("name")) == wanted), None
    )
    if cluster is None:
        return SourceReading(value=None, reason=f"{where} names no cluster for its current context")
    fabric = words(cluster.get("fabricType")) or _DEFAULT_FABRIC
    return SourceReading(value={"fabric": fabric, "namespaces": len(tables(cluster.get("namespaces")))})


class CerebrasAccelerators(ListedAccelerators):
    """The cluster of a user node. No framework has a name for a device: whole models are compiled for it."""

    VENDOR_NAME = "Cerebras"
    DEVICE_TYPE = "wse"

    def find(self) -> tuple[AcceleratorInfo, ...]:
        fabric = words(table(self.machine.library(ClusterConfig).ask("cluster").value).get("fabric"))
        extra: dict[str, str | int | float | bool] = {"seen_through": "configuration", "reason": _NOT_CONTACTED}
        model = f"Cerebras {_SYSTEMS.get(fabric, fabric)}"
        device = AcceleratorInfo(
            vendor=self.VENDOR_NAME, device_type=self.DEVICE_TYPE, model=model, seen_by="bus", extra_info=extra
        )
        return (device,) if fabric else ()

    def facts(self) -> VendorFacts:
        packages = self.machine.library(Packages)
        has_sdk = any(packages.ask("version", name).value for name in _PACKAGES)
        cluster = self.machine.library(ClusterConfig).ask("cluster")
        configuration = table(cluster.value)
        library = LibraryState.OK if has_sdk else LibraryState.UNKNOWN
        if not configuration:
            return replace(self.unseen(cluster.reason or "no cluster is configured"), library=library)
        fabric = words(configuration.get("fabric"))
        count = whole(configuration.get("namespaces"))
        spaces = "" if count is None else f", {count} namespace{'' if count == 1 else 's'}"
        where = f"a cluster of {_SYSTEMS.get(fabric, fabric or 'unknown systems')} is configured{spaces}"
        reason = f"{where}; {_NOT_CONTACTED}"
        if not has_sdk:
            library = LibraryState.MISSING
            reason = f"{reason}; none of the SDK's packages is installed: pip install cerebras_sdk"
        return replace(self.unseen(reason, hardware=HardwareState.UNKNOWN), library=library)
