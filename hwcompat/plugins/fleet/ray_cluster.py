"""Connect to a Ray cluster, or start a node on this machine. Ray's usage reports are off, and without an address it
listens on loopback only."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwcompat.hardware.errors import UsageError, echo

from .nodes import FleetNode

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CONNECT_S = 5.0
_LONGEST_SOCKET = 40
"""Ray's sockets are some 65 characters below its temporary folder, and the path of a socket takes 107."""


_NOBODY = "http://127.0.0.1:9"
SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": _NOBODY,
    "http_proxy": _NOBODY,
    "https_proxy": _NOBODY,
    "no_proxy": "127.0.0.1,localhost",
}
"""Without reports, the head of a cluster still reports that they are off, and queries the metadata services of three
clouds (dashboard/modules/usage_stats). With these variables it sends nothing."""


def import_ray() -> Any:
    """Import Ray with its usage reports off. Raises `UsageError` if it can't be imported."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    _set_broken_amdsmi_aside()
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "Ray isn't installed",
            why=str(error),
            fix="make setup-ray",
        ) from error
    return ray


def _set_broken_amdsmi_aside() -> bool:
    """Hide AMD's bindings if their library is missing, because Ray fails on them; return whether they were hidden."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module("amdsmi")
    except ImportError:
        return sys.modules.get("amdsmi", ...) is None
    except Exception:  # raises a KeyError
        sys.modules["amdsmi"] = None  # type: ignore[assignment]
        return True
    return False


@contextlib.contextmanager
def connected(address: str | None, resources: Mapping[str, int], cores: int) -> Iterator[Any]:
    """Connect Ray to the cluster at `address`; without one, to a node on this machine for the duration of the block,
    with `resources` and `cores`.

    Raises `UsageError` if no cluster answers there.
    """
    if address and address.startswith("ray://"):
        raise UsageError(
            f"{echo(address)} is the address of Ray's client",
            why="a run must start on a node of the cluster and connect to the cluster itself",
            fix="Pass the head's address: --address HOST:6379",
        )
    if address and address != "auto":
        _require_answer(address)
    without_output = contextlib.redirect_stdout(io.StringIO())  # Ray prints remarks on nodes to standard output
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with _own_node(resources, cores) if address is None else contextlib.nullcontext({"address": address}) as words:
        ray = import_ray()
        try:
            ray.init(log_to_driver=False, logging_level=logging.WARNING, **words)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"Ray can't be reached at {echo(address or 'this machine')}", why=str(error)) from error
        for number, handler in before.items():  # Ray replaces them
            signal.signal(number, handler)
        try:
            with without_output:
                yield ray
        finally:
            ray.shutdown()


def _require_answer(address: str) -> None:
    """Raise `UsageError` if no cluster answers, since Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(
            f"{echo(address)} isn't an address of a cluster", fix="For example: --address 127.0.0.1:6379"
        )
    host = host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster answers at {echo(address)}",
            why=error.strerror or str(error),
            fix=f"Start its head there: ray start --head --port={port} --disable-usage-stats",
        ) from error
    if host in _LOOPBACK:  # otherwise Ray uses the machine's external address
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


@contextlib.contextmanager
def _own_node(resources: Mapping[str, int], cores: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `ray.init` for a node on this machine, with its own temporary folder and password."""
    own = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        **SILENCE,
    }
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_SOCKET else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir=parent))
    if _set_broken_amdsmi_aside():  # for Ray's own processes, which import it too
        (folder / "python").mkdir()
        (folder / "python" / "amdsmi.py").write_text("raise ImportError\n", encoding="utf-8")
        path = os.environ.get("PYTHONPATH", "")
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / "python"), path]))
    before = dict(os.environ)
    os.environ.update(own)
    try:
        yield {
            "address": "local",
            "num_cpus": cores,
            "resources": dict(resources),
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(folder),
            "include_dashboard": False,
        }
    finally:
        for name in own:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in own if name in before})
        shutil.rmtree(folder, ignore_errors=True)


def alive_nodes(ray: Any) -> list[FleetNode]:
    """Return the nodes of the cluster that are alive now, in the order of their ids."""
    found = [FleetNode(id=one["NodeID"], offers=dict(one["Resources"])) for one in ray.nodes() if one["Alive"]]
    return sorted(found, key=lambda one: one.id)
