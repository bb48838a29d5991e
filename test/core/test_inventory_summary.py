"""The short list: one screen for every recorded machine, equal devices in one row, and a pointer to the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from recorded_machines import FIXTURES, machine

from hardware.backends.factory import known_targets
from hardware.detection import detect
from hardware.inventory_summary import WIDTH
from hardware.inventory_text import list_text
from hardware.recording import INDEX
from hwcompat.cli.device_commands import devices_group as main

MACHINES = sorted(str(one.parent.relative_to(FIXTURES)) for one in Path(FIXTURES).rglob(INDEX))
LINES = 28  # three vendors with devices that can't be used


@pytest.mark.parametrize("name", MACHINES)
def test_every_recorded_machine_fits_one_screen(name):
    lines = list_text(detect(machine(name))).splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    targets = "\n".join(lines).partition("Targets")[2].replace(",", " ").split()
    assert set(known_targets()) <= set(targets)
    assert lines[-1].endswith("--all")


def test_equal_devices_share_a_row_and_different_ones_do_not():
    found = list_text(detect(machine("nvidia/h100-x8")))
    assert "8 × NVIDIA H100 80GB HBM3 (79.6 GiB each), driver 570.124.06" in found
    hidden = list_text(detect(machine("nvidia/h100-container")))
    assert hidden.count("NVIDIA H100 80GB HBM3 (79.6 GiB), driver 570.124.06") == 2
    assert " ".join(hidden.split()).count("hidden by CUDA_VISIBLE_DEVICES=1") == 1


def test_a_vendor_without_devices_is_one_word_and_an_unusable_device_has_its_reason():
    found = list_text(detect(machine("amd/mi300x-denied")))
    assert "No device found  NVIDIA, Intel, Apple, AWS, Cerebras, Google, Groq, Habana," in found
    assert "cuda, mps, xpu  no device found" in found
    assert "Unusable         AMD: /dev/kfd can't be opened by this user" in found


def test_all_lists_what_the_screen_leaves_out():
    replay = ["list", "--replay", str(FIXTURES / "nvidia" / "h100-x8")]
    short, whole = (CliRunner().invoke(main, [*replay, *more]) for more in ([], ["--all"]))
    assert short.exit_code == whole.exit_code == 0
    assert "PCIe generation:" not in short.output
    assert whole.output.count("PCIe generation:") == 1, "eight equal devices are one block"
    assert "[0, 1, 2, 3, 4, 5, 6, 7]:" in whole.output
    assert "0000:18:00.0, 0000:2a:00.0" in whole.output
