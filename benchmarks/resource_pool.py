"""Measure the resource pool under threads: random requests for more models than fit, observed from outside.

Constructors and finalizers notify the observer, which never queries the pool: bytes alive or being built, concurrent
builds of one resource, and releases of resources in use. The baseline is a dictionary with one lock that never
releases anything and needs memory for all models.

`python benchmarks/resource_pool.py` prints the table; `--page docs/measured/resource-pool.md` writes it there.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hwcompat.plugins.placement.pool import ResourcePool
from hwcompat.plugins.placement.pool.device_memory import MemoryReading

MIB = 2**20
HEAD = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")


def endless(device: str) -> MemoryReading:
    """Return a machine with ample memory, so that only the budget limits."""
    return MemoryReading(total_bytes=2**50, free_bytes=2**50)


class Block:
    """A resource of a declared size that knows whether it is in use; it is released when it is collected."""

    def __init__(self, name: str) -> None:
        self.name = name


class Refused(Exception):
    """Raised by a constructor that fails on purpose."""


@dataclass
class Observer:
    """Tracks live resources by constructors and finalizers.

    `beyond` is the largest excess over the budget in bytes without the largest resource; the pool promises 0."""

    budget: int
    sizes: Mapping[str, int]
    lock: threading.RLock = field(default_factory=threading.RLock)
    alive: Counter[str] = field(default_factory=Counter)
    building: Counter[str] = field(default_factory=Counter)
    in_use: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    peak: int = 0
    beyond: int = 0
    most_builds_of_one: int = 0
    most_alive_of_one: int = 0
    released_in_use: int = 0
    builds: int = 0

    def begins(self, name: str) -> None:
        """Count the bytes of a resource whose constructor starts."""
        with self.lock:
            self.builds += 1
            self.building[name] += 1
            self.alive[name] += 1
            self.bytes += self.sizes[name]
            self.most_builds_of_one = max(self.most_builds_of_one, self.building[name])
            self.most_alive_of_one = max(self.most_alive_of_one, self.alive[name])
            self.peak = max(self.peak, self.bytes)
            largest = max(self.sizes[one] for one, count in self.alive.items() if count)
            self.beyond = max(self.beyond, self.bytes - largest - self.budget)

    def built(self, name: str, made: object) -> None:
        """Track the object of a constructor that succeeded."""
        weakref.finalize(made, self.ends, name).atexit = False
        with self.lock:
            self.building[name] -= 1

    def failed(self, name: str) -> None:
        """Remove the bytes of a constructor that failed."""
        with self.lock:
            self.building[name] -= 1
        self.ends(name)

    def ends(self, name: str) -> None:
        """Remove an object that was collected. The garbage collector may call this at any time."""
        with self.lock:
            self.alive[name] -= 1
            self.bytes -= self.sizes[name]
            self.released_in_use += bool(self.in_use[name])

    def uses(self, name: str, change: int) -> None:
        """Count a thread that takes a resource (1) or returns it (-1)."""
        with self.lock:
            self.in_use[name] += change


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load of a run. `fails` and `slow` are shares of builds, `seconds` the time of a build, `holds` how
    long a thread uses a resource (s). `leases` is the share of requests with a lease; the others hold a reference."""

    requests: int = 10_000
    threads: int = 64
    models: int = 40
    budget_share: float = 0.4
    fails: float = 0.05
    slow: float = 0.05
    seconds: float = 0.0
    holds: float = 0.0
    leases: float = 1.0
    seed: int = 1
    kind: str = "plain"
    unit: int = MIB
    patience_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a load. `pool` keeps the models alive that the observer still counts."""

    seconds: float
    served: int
    refused: int
    others: tuple[str, ...]
    is_stuck: bool
    observer: Observer
    stats: Mapping[str, Any]
    pool: ResourcePool


def sizes_of(load: Load) -> dict[str, int]:
    """Return seeded sizes in bytes by name, from 1 to 8 units."""
    draw = random.Random(load.seed)
    return {f"m{number:02}": draw.randint(1, 8) * load.unit for number in range(load.models)}


def budget_of(load: Load) -> int:
    """Return a share of the bytes of all models."""
    return int(load.budget_share * sum(sizes_of(load).values()))


def constructor(load: Load, observer: Observer, name: str, draw: random.Random) -> Callable[[], Any]:
    """Return a constructor of one resource that is sometimes slow and sometimes fails."""
    fails, slow = draw.random() < load.fails, draw.random() < load.slow

    def build() -> Any:
        observer.begins(name)
        if load.seconds or slow:
            time.sleep(10 * load.seconds if slow else load.seconds)
        if fails:
            observer.failed(name)
            raise Refused(name)
        made = _module(observer.sizes[name]) if load.kind == "torch" else Block(name)
        observer.built(name, made)
        return made

    return build


def _module(size: int) -> Any:
    """Return a torch module of this size: shared weights under two names, and a buffer."""
    import torch

    module = torch.nn.Module()
    module.register_parameter("weight", torch.nn.Parameter(torch.empty(size // 4 - 1024).fill_(1.0)))
    module.register_buffer("kept", torch.zeros(1024))
    module.register_parameter("again", module.weight)
    return module


def run(load: Load, pool: ResourcePool | None = None) -> Found:
    """Make all requests from all threads in a seeded order.

    A run without progress for `patience_s` seconds is stuck, and each thread's stack is printed."""
    sizes = sizes_of(load)
    observer = Observer(budget=budget_of(load), sizes=sizes)
    pool = pool or ResourcePool(budgets={"cpu": observer.budget}, memory=endless, wait_s=60.0)
    served, refused, others = Counter[int](), Counter[int](), list[str]()

    def use(name: str, got: object) -> None:
        if got is None or getattr(got, "name", name) != name:
            raise AssertionError(f"{name} was asked for, and {got!r} came")
        if load.holds or hash((name, id(got))) % 16 == 0:
            time.sleep(load.holds)  # Other threads run while this one uses it.

    def ask(thread: int) -> None:
        draw = random.Random(load.seed * 1000 + thread)
        count = load.requests // load.threads + (thread < load.requests % load.threads)
        for _ in range(count):
            name = draw.choice(list(sizes))
            build = constructor(load, observer, name, draw)
            expected = sizes[name] if load.kind == "plain" else None
            try:
                _one_request(pool, observer, name, build, expected, leased=draw.random() < load.leases, use=use)
                served[thread] += 1
            except Refused:
                refused[thread] += 1
            except Exception as error:  # Any other exception is a fault of the pool.
                others.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(load.threads)]
    began = time.perf_counter()
    for one in threads:
        one.start()
    stuck = _is_stuck(threads, lambda: sum(served.values()) + sum(refused.values()), load.patience_s)
    if stuck:
        faulthandler.dump_traceback(all_threads=True)
    return Found(
        seconds=time.perf_counter() - began,
        served=sum(served.values()),
        refused=sum(refused.values()),
        others=tuple(others),
        is_stuck=stuck,
        observer=observer,
        stats={} if stuck else pool.get_stats(),
        pool=pool,
    )


def _is_stuck(threads: list[threading.Thread], done: Callable[[], int], patience_s: float) -> bool:
    """Wait for all threads; return whether none made progress for that time."""
    before, since = -1, time.perf_counter()
    while any(one.is_alive() for one in threads):
        next(one for one in threads if one.is_alive()).join(0.2)
        if (now := done()) != before:
            before, since = now, time.perf_counter()
        elif time.perf_counter() - since > patience_s:
            return True
    return False


def _one_request(
    pool: ResourcePool,
    observer: Observer,
    name: str,
    build: Callable[[], Any],
    expected: int | None,
    *,
    leased: bool,
    use: Callable[[str, object], None],
) -> None:
    if not leased:
        got = pool.get_resource("model", name, build, expected_bytes=expected)
        observer.uses(name, 1)
        use(name, got)
        observer.uses(name, -1)  # The next request may release it.
        return
    with pool.lease("model", name, build, expected_bytes=expected) as got:
        observer.uses(name, 1)
        use(name, got)
        observer.uses(name, -1)


class Dictionary:
    """The baseline: a dictionary with one lock that builds under it and never releases anything."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: dict[tuple[str, str], Any] = {}

    def get_resource(self, kind: str, name: str, build: Callable[[], Any], **_: Any) -> Any:
        """Return the resource, built on the first request."""
        with self.lock:
            if (kind, name) not in self.made:
                self.made[kind, name] = build()
            return self.made[kind, name]

    def get_stats(self) -> dict[str, Any]:
        """Return empty statistics."""
        return {}


def rival(load: Load) -> Found:
    """Make the same requests to a dictionary."""
    return run(Load(**{**vars(load), "leases": 0.0}), Dictionary())  # type: ignore[arg-type]


LOADS: Mapping[str, Load] = {
    "objects of declared sizes": Load(),
    "the same, none taken as a lease": Load(leases=0.0),
    "builds of 2 ms, one in 20 of 20 ms": Load(seconds=0.002),
    "torch modules of 1 to 8 MiB": Load(kind="torch"),
    "torch modules, all fit the budget": Load(kind="torch", budget_share=1.5),
    "objects, all fit the budget": Load(budget_share=1.5),
}


def row(name: str, load: Load) -> list[str]:
    """Return one row of the table."""
    found, theirs = run(load), rival(load)
    seen = found.observer
    rate, other = found.served / found.seconds, theirs.served / theirs.seconds
    return [
        name,
        f"{found.served:,} + {found.refused:,}",
        str(len(found.others)),
        "yes" if found.is_stuck else "no",
        f"{seen.budget / MIB:.0f}",
        f"{seen.peak / MIB:.0f}",
        f"{max(0, seen.beyond) / MIB:.0f}",
        str(seen.most_builds_of_one),
        str(seen.released_in_use),
        f"{seen.builds:,}",
        f"{found.stats.get('evictions', 0):,}",
        f"{rate:,.0f}",
        f"{rate / other:.2f}",
        f"{theirs.observer.peak / MIB:.0f}",
    ]


HEADS = (
    "10,000 requests of 64 threads for 40 models",
    "served + refused by a constructor",
    "other errors",
    "stuck",
    "budget, MiB",
    "most alive, MiB",
    "beyond budget without the largest, MiB",
    "most builds of one at once",
    "released while leased",
    "builds",
    "released",
    "served in 1 s",
    "rate / dictionary",
    "dictionary's most, MiB",
)
PROMISED = ("beyond budget without the largest, MiB", "released while leased")


@click.command(help=__doc__)
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Write the page to this file.")
def main(page: Path | None) -> None:
    """Run all loads and print the table."""
    from tabulate import tabulate

    rows = [row(name, load) for name, load in LOADS.items()]
    versions = f"Python {sys.version.split()[0]}, torch {metadata.version('torch')}"
    broken = sum(any(one[HEADS.index(head)] != "0" for head in PROMISED) for one in rows)
    result = f"In {len(rows) - broken} of {len(rows)} loads, the pool kept its budget and released nothing in use."
    head = HEAD.format(result=result, date=f"{datetime.now(UTC):%Y-%m-%d}", versions=versions)
    text = f"{head}{tabulate(rows, headers=HEADS, tablefmt='github', disable_numparse=True)}\n"
    click.echo(text, nl=False)
    if page is not None:
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
