"""Texts of recorded machines, cut, swapped, in another locale, with huge numbers and broken bytes: an inventory is
made of whatever is left, in its published shape, and nothing is raised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import strategies as st

from hardware.detection import HardwareInfo
from hardware.inventory.system.main_memory import read_memory
from hardware.inventory.system.processor import read_cpu
from hardware.inventory.system.storage import read_storage
from hardware.inventory_text import list_text
from hardware.machine import SourceReading
from hardware.recording import ReplayedMachine

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "hardware" / "schemas" / "inventory.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
MACHINES = sorted(path.parent for path in (ROOT / "test" / "fixtures" / "machines").glob("*/machine.json"))


def truncated(text: str, share: float) -> str:
    return text[: int(len(text) * share)]


def reordered(text: str, share: float) -> str:
    lines = text.splitlines()
    cut = int(len(lines) * share)
    return "\n".join(lines[cut:] + lines[:cut][::-1])


def foreign(text: str, share: float) -> str:
    return re.sub(r"(\d)\.(\d)", r"\1,\2", text)


def huge(text: str, share: float) -> str:
    numbers = list(re.finditer(r"\d+", text))
    if not numbers:
        return text
    chosen = numbers[int((len(numbers) - 1) * share)]
    return text[: chosen.start()] + "9" * 40 + text[chosen.end() :]


def enormous(text: str, share: float) -> str:
    return re.sub(r"\d+", "9" * 5000, text, count=3)


def negative(text: str, share: float) -> str:
    return re.sub(r"(?<![\w.-])(\d)", r"-\1", text)


def broken(text: str, share: float) -> str:
    data = bytearray(text.encode())
    if data:
        data[int((len(data) - 1) * share)] = 0xFF
    return data.decode(errors="replace")


def emptied(text: str, share: float) -> str:
    return ""


def quoted(text: str, share: float) -> str:
    return re.sub(r": (\d+)", r': "\1"', text)


def nulled(text: str, share: float) -> str:
    return re.sub(r": (\"[^\"]*\"|\d+|\{\})", ": null", text)


def listed(text: str, share: float) -> str:
    return text.replace("{", "[", 1).replace("}", "]", 1)


CHANGES = (truncated, reordered, foreign, huge, enormous, negative, broken, emptied, quoted, nulled, listed)


class Mutated(ReplayedMachine):
    """A recorded machine, every text of which is changed by one rule, or each `every`th of them."""

    change = staticmethod(truncated)
    share = 0.5
    every = 1

    def _changed(self, key: str, text: str) -> str:
        return self.change(text, self.share) if sum(map(ord, key)) % self.every == 0 else text

    def text(self, path: str) -> str | None:
        said = super().text(path)
        return None if said is None else self._changed(path, said).strip()

    def link(self, path: str) -> str | None:
        said = super().link(path)
        return None if said is None else self._changed(path, said)

    def run(self, *words: str, accept: int = 0) -> SourceReading[str]:
        told = super().run(*words, accept=accept)
        if told.value is None:
            return told
        return SourceReading(value=self._changed(words[-1], told.value))


@pytest.mark.fuzz(30)
@pytest.mark.parametrize("folder", MACHINES, ids=lambda path: path.name)
def test_no_text_of_a_machine_breaks_its_inventory(fuzz: Any, folder: Path) -> None:
    def holds(change: object, share: float, every: int, smart: bool) -> None:
        machine = Mutated(folder)
        machine.change, machine.share, machine.every = change, share, every  # type: ignore[assignment]
        storage = read_storage(machine, smart=smart)
        assert not [reason for reason in storage.failures.values() if re.match(r"\w+(Error|Exception)\b", reason)]
        inventory = HardwareInfo(
            host=machine.host(),
            cpu=read_cpu(machine),
            memory=read_memory(machine, modules=True),
            storage=storage.devices,
            storage_failures=storage.failures,
        )
        data = inventory.to_dict()
        VALIDATOR.validate(data)
        json.dumps(data, allow_nan=False)
        assert "Storage" in list_text(inventory)

    fuzz(
        holds,
        change=st.sampled_from(CHANGES),
        share=st.floats(0, 1),
        every=st.integers(1, 5),
        smart=st.booleans(),
    )
