"""No output of a tool, however broken, stops the inventory or becomes a figure that can't be.

Every recorded machine of test/fixtures is taken: its files, commands and libraries' answers come back truncated, with
lines in another order, with decimal commas, huge numbers or bytes that are no text.
"""

from __future__ import annotations

import functools
import json
import random
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hardware.detection import HardwareInfo, detect
from hardware.inventory.system.main_memory import read_memory
from hardware.inventory.system.processor import read_cpu
from hardware.inventory.system.storage import read_storage
from hardware.inventory.vendors import registered_vendors
from hardware.inventory.vendors.vendor import AcceleratorBackend, NoSuchIndex
from hardware.inventory_text import FORMATS, list_text
from hardware.machine import Library, SourceReading
from hardware.recording import INDEX, ReplayedMachine

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "test" / "fixtures"
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "hardware" / "schemas" / "inventory.json").read_text(encoding="utf-8"))
)
VENDORS = sorted({path.parent.parent.name for path in FIXTURES.glob(f"*/*/{INDEX}")})
METRICS = ("get_temperature", "get_memory_usage", "get_utilization", "get_power_usage", "get_throttle_reasons")
HUGE = ("9" * 30, "9" * 5000, "1e999", "-1", "0", "4294967295", "18446744073709551615", "NaN", "-Infinity")


def _reordered(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    draw.shuffle(lines)
    return "\n".join(lines)


def _no_text(text: str, draw: random.Random) -> str:
    data = bytearray(text.encode())
    for _ in range(1 + len(data) // 20):
        data.insert(draw.randrange(len(data) + 1), draw.choice((0x00, 0x80, 0xC3, 0xFF, 0x1B)))
    return data.decode(errors="replace")  # as a live machine reads bytes


def _some(pattern: str, others: Sequence[str], share: float) -> Callable[[str, random.Random], str]:
    """Replace a share of what a pattern matches."""

    def change(text: str, draw: random.Random) -> str:
        return re.sub(pattern, lambda one: draw.choice(others) if draw.random() < share else one.group(), text)

    return change


def _all(pattern: str, other: str) -> Callable[[str, random.Random], str]:
    return lambda text, draw: re.sub(pattern, other, text)


MUTATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "truncated": lambda text, draw: text[: draw.randrange(len(text) + 1)],
    "emptied": lambda text, draw: "",
    "reordered": _reordered,
    "without lines": lambda text, draw: "\n".join(line for line in text.splitlines() if draw.random() < 0.8),
    "no text": _no_text,
    "other locale": _all(r"(\d)\.(\d)", r"\1,\2"),
    "negative": _all(r"(?<![\w.-])(\d)", r"-\1"),
    "quoted": _all(r": (\d+)", r': "\1"'),
    "nulled": _all(r": (\"[^\"]*\"|\d+|\{\})", ": null"),
    "listed": lambda text, draw: text.replace("{", "[", 1).replace("}", "]", 1),
    "huge numbers": _some(r"\d+", HUGE, 0.3),
    "not reported": _some(r"\b[\w.]+\b", ("N/A",), 0.1),
    "other type": _some(r'(?<=: )("[^"]*"|\d+)', ("[]", "{}", "true", "null", "[[1]]", '""', "-0.0"), 0.2),
}


@functools.cache
def recorded(folder: Path, asked: str, name: str) -> Any:
    """What the machine that isn't broken answers; thousands of examples ask for the same files."""
    return getattr(ReplayedMachine, asked)(whole(folder), name)


@functools.cache
def whole(folder: Path) -> ReplayedMachine:
    return ReplayedMachine(folder)


class MutatedMachine(ReplayedMachine):
    """A recorded machine some of whose answers are broken; the same seed breaks them in the same way."""

    WHOLE = ("/proc/meminfo",)
    """Files that stay: where a live machine has no memory there, psutil is asked, and of that nothing is recorded."""

    def __init__(self, folder: Path, kinds: list[str], seed: int, share: float) -> None:
        super().__init__(folder)
        self._kinds, self._seed, self._share = kinds, seed, share

    def draw(self, name: str) -> random.Random:
        return random.Random(self._seed ^ zlib.crc32(name.encode()))

    def broken(self, name: str, text: str) -> str:
        draw = self.draw(name)
        if draw.random() > self._share:
            return text
        for kind in self._kinds:
            text = MUTATIONS[kind](text, draw)
        return text

    def text(self, path: str) -> str | None:
        told: str | None = recorded(self.folder, "text", path)
        return told if told is None or path in self.WHOLE else self.broken(path, told).strip()

    def link(self, path: str) -> str | None:
        told = super().link(path)
        return None if told is None else self.broken(path, told)

    def names(self, folder: str) -> tuple[str, ...] | None:
        told: tuple[str, ...] | None = recorded(self.folder, "names", folder)
        return told

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        told = super().run(*words, accept=accept)
        return told if told.value is None else SourceReading(value=self.broken(" ".join(words), told.value))

    def library(self, kind: type[Library]) -> Library:
        return MutatedLibrary(super().library(kind), self, self._share)


class MutatedLibrary(Library):
    """A library some of whose figures and texts are others, of the same type, or are refused."""

    NAME = "mutated"

    def __init__(self, library: Library, machine: MutatedMachine, share: float) -> None:
        self._library, self._machine, self._share = library, machine, share

    def ask(self, function: str, *arguments: Any) -> SourceReading[Any]:
        told = self._library.ask(function, *arguments)
        draw = self._machine.draw(f"{function} {arguments}")
        if told.value is None or function == "opening" or draw.random() > self._share:
            return told
        if draw.random() < 0.2:
            return SourceReading(value=None, reason="refused")
        return SourceReading(value=self._other(told.value, draw))

    def _other(self, value: Any, draw: random.Random) -> Any:
        if isinstance(value, dict):
            return {key: self._other(one, draw) for key, one in value.items()}
        if isinstance(value, list):
            return [self._other(one, draw) for one in value]
        if draw.random() > self._share or isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return draw.choice((0, -1, 1, 0xFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1, value + 1))
        if isinstance(value, float):
            return draw.choice((0.0, -1.0, 1e300, float("inf"), float("nan"), value))
        return self._machine.broken(value, value)


def check_metrics(backend: AcceleratorBackend) -> None:
    """Every metric of every device answers, with a figure that can be or with none."""
    for index in range(min(backend.get_device_count(), 3)):
        told = {}
        for name in METRICS:
            try:
                told[name] = getattr(backend, name)(index)
            except NoSuchIndex:  # a device that is gone since it was counted
                told[name] = None
        temperature, memory, rates, watts, reasons = told.values()
        assert temperature is None or -60 <= temperature <= 250
        assert memory is None or (0 <= memory["used"] <= memory["total"] and 0 <= memory["free"] <= memory["total"])
        assert all(rate is None or 0 <= rate <= 100 for rate in (rates or {}).values())
        assert watts is None or 0 <= watts < 1e6
        assert reasons is None or all(isinstance(one, str) for one in reasons)


def check(machine: MutatedMachine) -> None:
    """Complete inventory of a broken machine."""
    found = detect(machine)
    failed = [one.reason for one in found.vendors if "the vendor's module failed" in one.reason]
    assert not failed
    # JSON has no infinity, so that a figure which isn't finite fails here.
    SCHEMA.validate(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert list_text(found, FORMATS[len(found.vendors[0].reason) % len(FORMATS)])
    listed = {one.vendor for one in found.accelerators if one.index is not None}
    for vendor in registered_vendors().found.values():
        if vendor.VENDOR_NAME not in listed:
            continue
        backend = vendor(machine)
        check_metrics(backend)
        backend.shutdown()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters are sampled twice; nothing is gained by waiting for them here."""
    from hardware.inventory.vendors import _intel_files

    monkeypatch.setattr(_intel_files, "_BETWEEN_SAMPLES_S", 1e-5)


def test_every_mutation_changes_a_text() -> None:
    text = 'a: 1.5\nb: 2\nc: 33.25\nd: {"e": 1}\n'
    changed = {name for name, mutation in MUTATIONS.items() for seed in range(20)
               if mutation(text, random.Random(seed)) != text}  # fmt: skip
    assert changed == set(MUTATIONS)


def machines_of(vendor: str) -> list[Path]:
    found = sorted(path.parent for path in (FIXTURES / vendor).glob(f"*/{INDEX}"))
    assert found
    return found


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_machine_that_is_not_broken_passes_the_same_checks(vendor: str) -> None:
    for folder in machines_of(vendor):
        check(MutatedMachine(folder, [], 0, 0.0))


@pytest.mark.fuzz(60)
@pytest.mark.parametrize("vendor", VENDORS)
def test_no_mutated_output_stops_the_inventory(fuzz: Any, vendor: str) -> None:
    machines = machines_of(vendor)
    for draw in fuzz:
        kinds = draw.sample(sorted(MUTATIONS), draw.randint(1, 2))
        check(MutatedMachine(draw.choice(machines), kinds, draw.getrandbits(32), draw.choice((0.05, 0.3, 1.0))))


class MutatedHost(MutatedMachine):
    WHOLE = ()


@pytest.mark.fuzz(30)
@pytest.mark.parametrize("folder", machines_of("machines"), ids=lambda path: path.name)
def test_no_text_of_a_machine_breaks_its_inventory(fuzz: Any, folder: Path) -> None:
    """The inventory of processor, memory and disks is made of whatever is left."""
    for draw in fuzz:
        share = draw.choice((0.2, 0.5, 1.0))
        machine = MutatedHost(folder, [draw.choice(sorted(MUTATIONS))], draw.getrandbits(32), share)
        storage = read_storage(machine, smart=draw.random() < 0.5)
        assert not [reason for reason in storage.failures.values() if re.match(r"\w+(Error|Exception)\b", reason)]
        inventory = HardwareInfo(
            host=machine.host(),
            cpu=read_cpu(machine),
            memory=read_memory(machine, modules=True),
            storage=storage.devices,
            storage_failures=storage.failures,
        )
        SCHEMA.validate(json.loads(json.dumps(inventory.to_dict(), allow_nan=False)))
        assert "Storage" in list_text(inventory, everything=True)
