"""Targets and vendors keep what the product relies on, those from outside the repository too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, Ran, installed_example

from hardware.inventory.vendors import VENDORS
from hardware.workers import environment_of

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples"
FIXTURES = REPOSITORY / "test" / "fixtures"
NO_XLA = environment_of("tpu").reason
BACKENDS = (
    pytest.param("openvino", marks=pytest.mark.extended),
    pytest.param(
        "tpu:xla-cpu",
        marks=(pytest.mark.skipif(bool(NO_XLA), reason=f"target tpu isn't here: {NO_XLA}"), pytest.mark.extended),
    ),
    "mychip",
)
BROKEN_BACKEND = """
from hardware.backends.cpu import CPUBackend

class Broken(CPUBackend):
    BACKEND_NAME = "broken"

    def known_answer(self):
        return 0.0, 0.0, 0.0
"""
BROKEN_VENDOR = """
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

Ask = Callable[..., Ran]


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of a target and a vendor called `mychip` that were installed."""
    return [installed_example(name, tmp_path_factory.mktemp(name)) for name in ("backend-plugin", "vendor-plugin")]


@pytest.fixture
def ask(command_line: CommandLine, tmp_path: Path, plugins: list[Path]) -> Ask:
    """Ask a module of Python, to which `plugins` and further folders are known."""

    def asked(*words: str | Path, paths: tuple[Path, ...] = (), cwd: Path = REPOSITORY) -> Ran:
        path = os.pathsep.join(map(str, (*paths, *plugins, REPOSITORY)))
        return command_line.python(tmp_path / "said", "-m", *words, env={"PYTHONPATH": path}, cwd=cwd)

    return asked


BACKEND, VENDOR = (
    ("pytest", "-q", "-p", "no:cacheprovider", "--pyargs", name)
    for name in ("generators.contract", "hardware.testing.contract")
)


def assert_all_passed(ran: Ran) -> None:
    assert ran.code == 0, ran.out
    assert " passed" in ran.out
    assert "skipped" not in ran.out


def broken(folder: Path, group: str, code: str) -> Path:
    """A folder with an installed package `broken` that has one entry point."""
    (folder / "broken-1.dist-info").mkdir()
    (folder / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "broken-1.dist-info" / "entry_points.txt").write_text(f"[hwcompat.{group}]\nbroken = broken:Broken\n")
    (folder / "broken.py").write_text(code)
    return folder


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_keeps_the_contract(name: str, ask: Ask) -> None:
    assert_all_passed(ask(*BACKEND, "--backend", name))


@pytest.mark.extended
def test_one_command_takes_a_backend_to_a_report(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("command_line.LIMIT_S", 1200)
    words = ("enable", "mychip", "--model", "mobilenet_v1", "--output-dir", tmp_path / "enabled")
    ran = ask("hwcompat", *words)
    report = (tmp_path / "enabled" / "enable.md").read_text()
    assert "contract   clean" in report
    assert "1 of 1 cell works" in report
    assert "10 operators in float32, bfloat16, float16" in report, "those of the model alone"
    assert (ran.code == 0) == ("findings" not in ran.out and "failed" not in ran.out)


def test_a_backend_that_is_not_here_or_unknown_keeps_no_contract(ask: Ask) -> None:
    ran = ask(*BACKEND, "--backend", "cuda")
    assert ran.code == 1
    assert " errors in " in ran.out, "it fails, and skips nothing"
    assert "passed" in ran.out, "its name is known"
    ran = ask(*BACKEND, "--backend", "nosuch")
    assert ran.code == 4
    assert "unknown device 'nosuch'" in ran.err + ran.out
    assert "Is its package installed" in ran.err + ran.out


def test_a_backend_that_breaks_the_contract_fails(ask: Ask, tmp_path: Path) -> None:
    ran = ask(*BACKEND, "--backend", "broken", paths=(broken(tmp_path, "backends", BROKEN_BACKEND),))
    assert ran.code == 1, ran.out
    assert "test_it_gives_the_known_answer" in ran.out


def test_a_model_runs_on_a_backend_from_outside(
    plugins: list[Path], command_line: CommandLine, tmp_path: Path
) -> None:
    path = os.pathsep.join(map(str, (*plugins, REPOSITORY)))
    ran = command_line.run(tmp_path, "--model", "bert", "--device", "mychip", "--run", env={"PYTHONPATH": path})
    assert ran.code == 0, ran.out + ran.err
    assert ran.verdict("bert/fill-mask/mychip/float32") == "high"
    assert ran.lines("bert/fill-mask/mychip/float32")["runs_natively"].native_ops["aten.addmm"] > 0


@pytest.mark.extended
def test_vendors_keep_the_contract_on_recorded_machines(ask: Ask) -> None:
    folders = sorted({index.parent.parent for index in FIXTURES.glob("*/*/machine.json")})
    assert len(folders) >= 5
    for names, machines in ((VENDORS.shipped(), folders), (["mychip"], [EXAMPLES / "vendor-plugin" / "recorded"])):
        asked = [word for name in names for word in ("--accelerator", name)]
        assert_all_passed(ask(*VENDOR, *asked, *(f"--machines={one}" for one in machines)))


def test_its_cards_are_in_the_list(ask: Ask) -> None:
    ran = ask("hardware", "list", "--all", "--replay", EXAMPLES / "vendor-plugin" / "recorded" / "two-cards")
    assert ran.code == 0, ran.err
    assert re.search(r"\[0, 1\]: +MyChip 200 \(npu\)", ran.out), "equal cards are one block"
    assert "32 GiB" in ran.out


def test_a_vendor_that_breaks_the_contract_fails_where_it_breaks_it(ask: Ask, tmp_path: Path) -> None:
    ran = ask(*VENDOR, "--accelerator", "broken", paths=(broken(tmp_path, "accelerators", BROKEN_VENDOR),))
    assert ran.code == 1, ran.out
    for test in (
        "test_a_machine_without_a_sign_of_it_has_none",
        "test_its_devices_are_numbered_and_whole",
        "test_its_metrics_have_their_units",
        "test_a_device_that_is_not_there_has_no_metrics",
    ):
        assert f"FAILED hardware/testing/contract/test_accelerator.py::{test}" in ran.out, test


def test_it_can_be_asked_from_another_folder(ask: Ask, tmp_path: Path) -> None:
    options = ("-p", "hardware.testing.contract.contract_options")
    ran = ask("pytest", *options, *VENDOR[1:], "--accelerator", "mychip", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err


def test_a_question_that_cannot_be_asked_is_an_error(ask: Ask) -> None:
    for words, said in (
        ([], "nothing to test. Give --accelerator NAME"),
        (["--accelerator", "nvidai"], "unknown vendor nvidai"),
        (["--accelerator", "nvidia", "--machines=docs"], "no recorded machine in docs"),
    ):
        ran = ask(*VENDOR, *words)
        assert ran.code != 0
        assert said in ran.out + ran.err
