"""Broken texts of recorded machines: an inventory of processor, memory and disks is made of whatever is left, in its
published shape, and nothing is raised."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_tool_outputs import MUTATIONS, SCHEMA, MutatedMachine, machines_of

from hardware.detection import HardwareInfo
from hardware.inventory.system.main_memory import read_memory
from hardware.inventory.system.processor import read_cpu
from hardware.inventory.system.storage import read_storage
from hardware.inventory_text import list_text


class Mutated(MutatedMachine):
    WHOLE = ()


@pytest.mark.fuzz(30)
@pytest.mark.parametrize("folder", machines_of("machines"), ids=lambda path: path.name)
def test_no_text_of_a_machine_breaks_its_inventory(fuzz: Any, folder: Path) -> None:
    for draw in fuzz:
        share = draw.choice((0.2, 0.5, 1.0))
        machine = Mutated(folder, [draw.choice(sorted(MUTATIONS))], draw.getrandbits(32), share)
        storage = read_storage(machine, smart=draw.random() < 0.5)
        assert not [reason for reason in storage.failures.values() if re.match(r"\w+(Error|Exception)\b", reason)]
        inventory = HardwareInfo(
            host=machine.host(),
            cpu=read_cpu(machine),
            memory=read_memory(machine, modules=True),
            storage=storage.devices,
            storage_failures=storage.failures,
        )
        data = inventory.to_dict()
        SCHEMA.validate(data)
        json.dumps(data, allow_nan=False)
        assert "Storage" in list_text(inventory, everything=True)
