"""The configuration of a Cerebras cluster on a user node, reduced to what names nobody.

Its file holds addresses, names and certificates; none of them leaves this module. Source of its shape:
cerebras/appliance/cluster/config.py in the Python package cerebras_appliance 2.10.0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..machine import Library, Reading
from ..values import from_json, table, tables, words

DEFAULT_FILE = "/opt/cerebras/config_v2"
FILE_VARIABLE = "CSCONFIG_PATH"
_DEFAULT_FABRIC = "cs2"
_MOST_BYTES = 2**20


class ClusterConfig(Library):
    """Whether a cluster is configured. The cluster itself is on the network and is never reached."""

    NAME = "cerebras_config"

    def ask(self, function: str, *arguments: Any) -> Reading[Any]:
        """`cluster`: a table with the `fabric` (`cs2`, `cs3`) and how many `namespaces` this user may use."""
        if function != "cluster":
            return Reading(value=None, reason=f"{function} isn't asked of a cluster's configuration")
        named = os.environ.get(FILE_VARIABLE)
        path = Path(named or DEFAULT_FILE)
        where = f"the file that {FILE_VARIABLE} names" if named else DEFAULT_FILE
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
        except OSError as error:
            return Reading(value=None, reason=f"no cluster is configured: {where}: {error.strerror}")
        return read_cluster(text, where)


def read_cluster(text: str, where: str) -> Reading[Any]:
    """The cluster of the current context."""
    config = table(from_json(text))
    contexts = {words(one.get("name")): words(one.get("cluster")) for one in tables(config.get("contexts"))}
    wanted = contexts.get(words(config.get("currentContext")), "")
    cluster = next(
        (one for one in tables(config.get("clusters")) if wanted and words(one.get("name")) == wanted), None
    )
    if cluster is None:
        return Reading(value=None, reason=f"{where} names no cluster for its current context")
    fabric = words(cluster.get("fabricType")) or _DEFAULT_FABRIC
    return Reading(value={"fabric": fabric, "namespaces": len(tables(cluster.get("namespaces")))})
