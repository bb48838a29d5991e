"""`ResourcePool`: load resources once, share them, and keep each device within a memory budget."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from hwcompat.hardware.backends.factory import resolve_target
from hwcompat.hardware.errors import UsageError, echo
from hwcompat.hardware.target import Target

from .account import Entry, Key, PoolLoad
from .device_memory import ReadMemory, read_device
from .load_resource import acquire
from .pool_models import built_on, load_model, load_tokenizer, names_on, place_for, weights_bytes
from .pool_state import Incident, PoolState, global_lock

_FRACTION = 0.8
_WAIT_S = 60.0
_HOST = "cpu"
_MOST_WORKERS = 32

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CallOutcome:
    """The outcome of one call: its `value`, or the `error` that it raised."""

    value: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether it returned a value."""
        return self.error is None


class Lease(Generic[T]):
    """A lease on a resource, which stays loaded until `release` or the end of the `with` block."""

    def __init__(self, pool: ResourcePool, entry: Entry) -> None:
        self._pool = pool
        self._entry: Entry | None = entry
        self._thread = threading.get_ident()

    @property
    def resource(self) -> T:
        """The leased resource. Raises `UsageError` after the release."""
        entry = self._entry
        if entry is None:
            raise UsageError("the lease has ended", fix="Use the resource inside its `with` block.")
        resource: T = entry.resource
        return resource

    def release(self) -> None:
        """End the lease; does nothing the second time. Any thread may call it."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._pool._release(entry, self._thread)

    def __enter__(self) -> T:
        return self.resource

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # May run at any moment, also under the pool's lock: the pool ends the lease at its next call.
        if self._entry is not None:
            self._pool._forgotten.append((self._entry, self._thread))


class ResourcePool:
    """Resources by kind and id, loaded once for any number of threads.

    `budgets` are bytes by device (`cpu`, `cuda:1`; `cuda` is each of its kind); any other device gets `fraction` of
    its memory, and no budget if its size is unknown. Invariant, for each device: at most one resource, loaded or
    being loaded, is beyond the budget; all others fit it. Above the share `low_memory` of a budget or of the device's
    memory, idle resources are evicted, the least recently used first.

    A load without memory waits `wait_s` seconds for others to release theirs, then raises `OutOfMemory`; a wait that
    can't end raises at once. `memory` and `clock` are for tests.
    """

    def __init__(
        self,
        *,
        budgets: Mapping[str, int] | None = None,
        fraction: float = _FRACTION,
        low_memory: float = 0.8,
        pressure: float = 0.9,
        wait_s: float = _WAIT_S,
        memory: ReadMemory = read_device,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for device, count in (budgets or {}).items():
            if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
                raise UsageError(f"{echo(str(count))} isn't a budget for {echo(device)}", why="it must be in bytes")
        own = {str(resolve_target(device)): count for device, count in (budgets or {}).items()}
        shares = {"fraction": fraction, "low_memory": low_memory, "pressure": pressure}
        for name, share in shares.items():
            if not 0 < share <= 1:
                raise UsageError(f"{name} is {share}", why="it must be a share, above 0 and at most 1")
        if low_memory > pressure or not wait_s >= 0:
            raise UsageError("low_memory must not exceed pressure, and wait_s must not be negative")
        self._state = PoolState(
            budgets=own,
            fraction=fraction,
            low_memory=low_memory,
            pressure=pressure,
            wait_s=wait_s,
            read_memory=memory,
            now=clock,
        )
        self._forgotten: deque[tuple[Entry, int]] = deque()

    # Requests

    def get_resource(
        self,
        resource_type: str,
        resource_id: str | None = None,
        constructor: Callable[[], T] | None = None,
        *,
        device: str = _HOST,
        expected_bytes: int | None = None,
    ) -> T:
        """Return the resource of that type and id, made by `constructor` if it isn't loaded.

        It stays in the pool as long as the caller references it; for types without weak references (numbers, strings,
        plain lists and mappings) use `lease`. `expected_bytes` is its size on `device`: memory is freed for it, and
        it counts if the resource has no tensors or arrays. Raises the constructor's exception.
        """
        with self.lease(
            resource_type, resource_id, constructor, device=device, expected_bytes=expected_bytes
        ) as resource:
            return resource

    def get_model(
        self,
        model_type: str,
        model_name: str,
        constructor: Callable[..., Any] | None = None,
        hardware_preferences: Mapping[str, Any] | None = None,
        *,
        device: str | Target | None = None,
        expected_bytes: int | None = None,
    ) -> Any:
        """Return the model on the chosen device: `device`, the preferred one, or the first available in the order of
        its family (`generators/compatibility/priorities.toml`).

        A constructor with a parameter `device` gets it, and a module is moved there; without a constructor
        transformers loads `model_name`, a local folder or a cached name. It stays as with `get_resource`. Raises
        `BackendUnavailable` if the device can't be used: no other device is used instead.
        """
        with self.lease_model(
            model_type, model_name, constructor, hardware_preferences, device=device, expected_bytes=expected_bytes
        ) as model:
            return model

    def get_tokenizer(self, model_type: str, model_name: str, constructor: Callable[[], Any] | None = None) -> Any:
        """Return the tokenizer of a model: from `constructor`, else from the local folder or cached name."""
        key = Key(kind="tokenizer", type=model_type, id=model_name, device=_HOST)
        build = constructor or partial(load_tokenizer, model_name)
        with self._lease(PoolLoad(key=key, build=build)) as tokenizer:
            return tokenizer

    def lease(
        self,
        resource_type: str,
        resource_id: str | None = None,
        constructor: Callable[[], T] | None = None,
        *,
        device: str = _HOST,
        expected_bytes: int | None = None,
    ) -> Lease[T]:
        """Return a lease on the resource of `get_resource`: `with pool.lease(…) as resource: …`"""
        key = Key(kind="resource", type=resource_type, id=resource_id or "", device=names_on(device).device)
        build = constructor or partial(_refuse, key)
        return self._lease(PoolLoad(key=key, build=build, claimed=expected_bytes))

    def lease_model(
        self,
        model_type: str,
        model_name: str,
        constructor: Callable[..., Any] | None = None,
        hardware_preferences: Mapping[str, Any] | None = None,
        *,
        device: str | Target | None = None,
        expected_bytes: int | None = None,
    ) -> Lease[Any]:
        """Return a lease on the model of `get_model`."""
        place = place_for(device, hardware_preferences, kinds=(model_type, model_name))
        key = Key(kind="model", type=model_type, id=model_name, device=place.device, precision=place.precision)
        if constructor is None:
            if not place.torch_type:
                raise UsageError(
                    f"{place.device} doesn't run torch modules, and models loaded by name are torch modules",
                    fix="Give a constructor that creates the model for this device.",
                )
            constructor = partial(load_model, model_type, model_name)
            if expected_bytes is None and key not in self._state.entries:
                expected_bytes = weights_bytes(model_name)
        return self._lease(PoolLoad(key=key, build=partial(built_on, place, constructor), claimed=expected_bytes))

    def _lease(self, wanted: PoolLoad) -> Lease[Any]:
        if wanted.claimed is not None and (isinstance(wanted.claimed, bool) or wanted.claimed < 0):
            raise UsageError(f"expected_bytes is {wanted.claimed}", why="it must be 0 or more")
        self._take_up_forgotten()
        return Lease(self, acquire(self._state, wanted))

    def _release(self, entry: Entry, thread: int) -> None:
        with self._state.lock:
            self._state.end_lease(entry, thread)
        self._state.tend_all(entry.size.bytes_by_device)

    def _take_up_forgotten(self) -> None:
        """Release leases whose objects were dropped without a release."""
        while self._forgotten:
            try:
                entry, thread = self._forgotten.popleft()
            except IndexError:  # another thread was faster
                return
            self._release(entry, thread)

    # Releases

    def cleanup_unused_resources(self, max_age_minutes: float = 30) -> int:
        """Release resources that were unused for this many minutes. Return how many were released."""
        if not (isinstance(max_age_minutes, int | float) and max_age_minutes >= 0):
            raise UsageError(f"max_age_minutes is {echo(str(max_age_minutes))}", why="it must be 0 or more")
        self._take_up_forgotten()
        state = self._state
        with state.lock:
            oldest = state.now() - 60 * max_age_minutes
            gone = state.release([one for one in state.entries.values() if one.is_idle and one.last_used <= oldest])
        state.tend_all()
        return gone

    def clear(self) -> None:
        """Release everything: idle resources now, leased ones with their last lease, loads when the waiting threads
        are done. Memory that is still referenced stays counted until it is freed."""
        self._take_up_forgotten()
        state = self._state
        with state.lock:
            for load in state.loads.values():
                load.dismissed = True
            for entry in [one for one in state.entries.values() if not one.is_idle]:
                entry.dismissed = True
                state.outgoing.add(entry)
                del state.entries[entry.key]
            state.release(list(state.entries.values()), forced=True)
        state.tend_all()

    # Calls and statistics

    def execute_concurrent(
        self, calls: Iterable[Callable[[], Any]], max_workers: int | None = None
    ) -> list[CallOutcome]:
        """Run calls concurrently; they may use this pool and run more calls. Return their outcomes in the order of
        the calls, each with its value or the error that it raised."""
        if max_workers is not None and max_workers < 1:
            raise UsageError(f"max_workers is {max_workers}", why="it must be 1 or more")
        outcomes = _run_all(self._state, list(calls), max_workers or _MOST_WORKERS)
        # The threads' references are gone now.
        self._state.tend_all()
        return outcomes

    def get_stats(self) -> dict[str, Any]:
        """Return requests, loads, devices, resources and incidents at one moment as JSON values. `pool_state.COUNTS`
        explains each count."""
        self._take_up_forgotten()
        return self._state.snapshot()

    def check_memory(self) -> None:
        """Measure how full each device is, and evict idle resources in low-memory mode."""
        self._take_up_forgotten()
        for account in list(self._state.accounts.values()):
            account.read_at = None
            self._state.tend(account, thorough=True)

    def incidents(self) -> tuple[Incident, ...]:
        """Return incidents for reports: low-memory mode, memory pressure, failed loads; a hundred at most."""
        with self._state.lock:
            return tuple(self._state.incidents.values())


def _refuse(key: Key) -> Any:
    raise UsageError(f"{key} isn't loaded", why="there is no constructor for it", fix="Give one.")


def _run_all(state: PoolState, calls: Sequence[Callable[[], Any]], max_workers: int) -> list[CallOutcome]:
    """Run the calls in new threads, so that calls may start more runs. Returns when all have ended, then raises an
    exception that isn't an `Exception` (an interruption)."""
    if not calls:
        return []
    workers: set[int] = set()
    me = threading.get_ident()

    def run(call: Callable[[], Any]) -> CallOutcome:
        thread = threading.get_ident()
        with state.lock:
            workers.add(thread)
        try:
            return CallOutcome(value=call())
        except Exception as error:  # a call may raise anything, which is its outcome
            return CallOutcome(error=error)
        finally:
            with state.lock:
                workers.discard(thread)

    with ThreadPoolExecutor(min(len(calls), max_workers), thread_name_prefix="resource-pool") as executor:
        # A call inside a constructor belongs to that constructor's load: it inherits the context.
        futures = [executor.submit(copy_context().run, run, call) for call in calls]
        with state.waits.waiting(me, lambda: set(workers)):
            return [future.result() for future in futures]


_global: list[ResourcePool] = []


def get_global_resource_pool() -> ResourcePool:
    """Return the pool that the whole process shares, created by the first call."""
    with global_lock:
        if not _global:
            _global.append(ResourcePool())
        return _global[0]


def used_global_pool() -> ResourcePool | None:
    """Return the shared pool if it was ever used."""
    with global_lock:
        pool = _global[0] if _global else None
    return pool if pool is not None and pool.get_stats()["requests"] else None
