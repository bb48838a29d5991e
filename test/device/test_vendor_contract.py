"""Vendors' files keep what the inventory relies on, one from outside the repository too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import REPOSITORY, installed_example

from hardware.inventory.vendors import VENDORS

pytestmark = pytest.mark.slow

EXAMPLE = REPOSITORY / "examples" / "vendor-plugin"
FIXTURES = REPOSITORY / "test" / "fixtures"

BROKEN = """
from hardware.accelerator_plugin import AcceleratorBackend, AcceleratorInfo

class Broken(AcceleratorBackend):
    VENDOR_NAME = "Broken"
    DEVICE_TYPE = "gpu"
    DEVICE_STRINGS = {"pytorch": "broken:{index}"}

    def is_available(self):
        return True

    def get_device_count(self):
        self.machine.run("broken-smi", "-L")
        return 1

    def list_devices(self):
        return (AcceleratorInfo(vendor="Broken", device_type="gpu", model="Card", index=1, memory_bytes=0),)

    def get_temperature(self, index):
        return 4100.0

    def get_memory_usage(self, index):
        return {"total": 10, "used": 20, "free": 0}
"""


def run(words: list[str], folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HWCOMPAT_", "PYTEST_"))}
    path = os.pathsep.join(map(str, (*paths, REPOSITORY)))
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=kept | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def ask(
    *names: str, machines: tuple[Path, ...] = (), paths: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    words = ["pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "hardware.testing.contract"]
    asked = [word for name in names for word in ("--accelerator", name)]
    return run([*words, *asked, *(f"--machines={one}" for one in machines)], REPOSITORY, *paths)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_example("vendor-plugin", tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "broken-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[hwcompat.accelerators]\nbroken = broken:Broken\n")
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


def test_vendors_keep_the_contract_on_recorded_machines(plugin: Path) -> None:
    folders = tuple(sorted({index.parent.parent for index in FIXTURES.glob("*/*/machine.json")}))
    assert len(folders) >= 5
    ours = ask(*VENDORS.shipped(), machines=folders)
    outside = ask("mychip", machines=(EXAMPLE / "recorded",), paths=(plugin,))
    for ran in (ours, outside):
        assert ran.returncode == 0, ran.stdout
        assert " passed" in ran.stdout
        assert "skipped" not in ran.stdout


def test_its_cards_stand_in_the_list(plugin: Path) -> None:
    replayed = str(EXAMPLE / "recorded" / "two-cards")
    ran = run(["hardware", "list", "--all", "--replay", replayed], REPOSITORY, plugin)
    assert ran.returncode == 0, ran.stderr
    assert "[1]:                   MyChip 200 (npu)" in ran.stdout
    assert "32 GiB" in ran.stdout


def test_a_vendor_that_breaks_the_contract_fails_where_it_breaks_it(broken: Path) -> None:
    ran = ask("broken", paths=(broken,))
    assert ran.returncode == 1, ran.stdout
    for test in (
        "test_a_machine_without_a_sign_of_it_has_none",
        "test_its_devices_are_numbered_and_whole",
        "test_its_metrics_have_their_units",
        "test_a_device_that_is_not_there_has_no_metrics",
    ):
        assert f"FAILED hardware/testing/contract/test_accelerator.py::{test}" in ran.stdout, test


def test_it_can_be_asked_from_another_folder(plugin: Path, tmp_path: Path) -> None:
    words = ["pytest", "-q", "-p", "no:cacheprovider", "-p", "hardware.testing.contract.contract_options", "--pyargs"]
    ran = run([*words, "hardware.testing.contract", "--accelerator", "mychip"], tmp_path, plugin)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_question_that_cannot_be_asked_is_an_error() -> None:
    contract = ["pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "hardware.testing.contract"]
    for words, said in (
        ([], "nothing to test. Give --accelerator NAME"),
        (["--accelerator", "nvidai"], "unknown vendor nvidai"),
        (["--accelerator", "nvidia", "--machines=docs"], "no recorded machine in docs"),
    ):
        ran = run([*contract, *words], REPOSITORY)
        assert ran.returncode != 0
        assert said in ran.stdout + ran.stderr
