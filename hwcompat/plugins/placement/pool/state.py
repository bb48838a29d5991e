"""What a pool knows of its resources: those that are there, those that are being loaded, and who uses them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from hardware.evidence.writer import now
from hardware.plain_text import one_line

from .account import Account, Limits, Need
from .incident import Incident
from .memory import ReadMemory
from .sizes import Size
from .waiting import Waits

_LONGEST_NAME = 120
_MOST_INCIDENTS = 100
_SOMEBODY = -1
"""Stands for a thread that is about to go on, whichever it is."""

_numbers = itertools.count(1)


def next_number() -> int:
    """1, 2, 3 …: the order of loads and of uses, of all pools of the process."""
    return next(_numbers)


@dataclass(frozen=True, kw_only=True)
class Key:
    """What is loaded once. `kind` is `model`, `tokenizer` or `resource`; the same on another device is another."""

    kind: str
    type: str
    id: str
    device: str
    precision: str = ""

    def __str__(self) -> str:
        name = f"{self.type}/{self.id}" if self.id else self.type
        precision = f" in {self.precision}" if self.precision else ""
        return f"{self.kind} {one_line(name, longest=_LONGEST_NAME)} on {self.device}{precision}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a caller asks for: `build` makes it, with nothing of the pool's held meanwhile. `declared` and `estimated`
    are bytes: what the caller says that it holds, and what its files say."""

    key: Key
    build: Callable[[], Any]
    name_of: Callable[[Any], str]
    declared: int | None = None
    estimated: int | None = None
    must_be_on: str = ""


@dataclass(kw_only=True, eq=False)
class Load:
    """One load, from the moment at which somebody asked for what wasn't there."""

    wanted: Wanted
    number: int
    owner: int
    own: frozenset[int]
    done: Condition
    need: Need = field(default_factory=lambda: Need(expected=None, measured=False))
    has_started: bool = False
    is_done: bool = False
    waiting: int = 0
    dismissed: bool = False
    entry: Entry | None = None
    error: BaseException | None = None


@dataclass(kw_only=True, eq=False)
class Entry:
    """One resource that is there.

    `leases` counts by thread who may use it, `promised` who waited for its load and hasn't taken it yet. `leaver` is
    the thread that sees whether it can go. `dismissed`: it goes as soon as nobody has a lease.
    """

    key: Key
    resource: Any
    size: Size
    stays: Condition
    loaded_at: float
    last_used: float
    order: int
    load_seconds: float = 0.0
    resident_change: int | None = None
    allocator_change: int | None = None
    uses: int = 0
    leases: Counter[int] = field(default_factory=Counter)
    promised: int = 0
    leaver: int | None = None
    kept_until: float = 0.0
    dismissed: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether no lease holds it and nobody looks whether it can go."""
        return not self.leases and not self.promised and self.leaver is None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a pool behaves: `budgets` in bytes by device (`cuda` stands for all of its kind), else `fraction` of what
    the device has; `wait_s` is how long a load waits for others to let go; `now` counts seconds."""

    budgets: Mapping[str, int]
    fraction: float
    limits: Limits
    wait_s: float
    read_memory: ReadMemory
    now: Callable[[], float]


class State:
    """All tables of a pool, and the lock under which they are used. No code of anybody else runs under it.

    `outgoing` are resources that the pool gives to nobody any more and that somebody still has a lease on.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.Lock()
        self.entries: dict[Key, Entry] = {}
        self.outgoing: set[Entry] = set()
        self.loads: dict[Key, Load] = {}
        self.sizes: dict[Key, int] = {}
        self.accounts: dict[str, Account] = {}
        self.waits = Waits()
        self.counts: Counter[str] = Counter()
        self.collected_again = 0.0
        self.incidents: dict[tuple[str, str, str], Incident] = {}

    def now(self) -> float:
        """Seconds of the pool's clock."""
        return self.settings.now()

    def account(self, device: str) -> Account:
        """The account of a device, opened when it is first asked for. Not under the lock: the device is asked what
        it has."""
        found = self.accounts.get(device)
        if found is not None:
            return found
        reading = self.settings.read_memory(device)
        budgets = self.settings.budgets
        given = budgets.get(device, budgets.get(device.partition(":")[0]))
        budget, said = given, "given"
        if given is None and reading.total_bytes:
            budget, said = (
                int(self.settings.fraction * reading.total_bytes),
                f"{self.settings.fraction:g} of the device",
            )
        elif given is None:
            said = f"none: {reading.reason}"
        made = Account(
            device=device,
            budget=budget,
            budget_from=said,
            room=Condition(self.lock),
            turn=Condition(self.lock),
            limits=self.settings.limits,
        )
        made.read(reading, self.now())
        with self.lock:
            return self.accounts.setdefault(device, made)

    def remember(
        self, kind: str, device: str, text: str, *, key: Key | None = None, error: str = "", error_type: str = ""
    ) -> None:
        """Keep what a report should tell; the same again (of `key`) is counted. Under the lock."""
        about = (kind, device, str(key or ""))
        found = self.incidents.pop(about, None)
        self.incidents[about] = Incident(
            kind=kind,
            device=device,
            text=text,
            error=error,
            error_type=error_type,
            model=key.id if key is not None and key.kind != "resource" else "",
            first_at=found.first_at if found else now(),
            last_at=now(),
            count=found.count + 1 if found else 1,
        )
        while len(self.incidents) > _MOST_INCIDENTS:
            del self.incidents[next(iter(self.incidents))]

    def loads_on(self, account: Account, but: Load) -> list[Load]:
        """The loads under way on a device, but one and those that it is a part of."""
        return [
            one
            for one in self.loads.values()
            if one is not but
            and one.has_started
            and one.number not in but.own
            and one.wanted.key.device == account.device
        ]

    def is_turn_of(self, load: Load, account: Account) -> bool:
        """Whether no other load of unknown size is under way, where that matters."""
        return load.need.measured or account.budget is None or not account.unmeasured - load.own

    def blockers(self, account: Account, load: Load) -> set[int]:
        """The threads that may make room on a device: who loads, looks whether something can go, or has a lease."""
        loads = self.loads_on(account, load)
        if not self.is_turn_of(load, account):
            return {one.owner for one in loads if one.number in account.unmeasured}
        found = {one.owner for one in loads}
        for entry in (*self.entries.values(), *self.outgoing):
            if account.device in entry.size.bytes_by_device:
                found.update(entry.leases)
                if entry.leaver is not None:
                    found.add(entry.leaver)
                if entry.promised:
                    found.add(_SOMEBODY)
        return found

    def idle(self, account: Account, now: float, kept: set[Entry]) -> list[Entry]:
        """What may go from a device, the least recently used first; not what was found in use a moment ago."""
        found = [
            entry
            for entry in self.entries.values()
            if entry.is_idle
            and entry.size.bytes_by_device.get(account.device)
            and entry not in kept
            and entry.kept_until <= now
        ]
        return sorted(found, key=lambda entry: entry.order)
