"""Two inventories compared: what differs is named, and what makes evidence worthless decides the exit code.

The short list: one screen for every recorded machine, equal devices in one row, and a pointer to the rest.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from recorded_machines import FIXTURES, computer, machine

from hardware import inventory_diff as module
from hardware.backends.factory import known_targets
from hardware.detection import detect
from hardware.errors import BrokenInput
from hardware.evidence.versions import RELEASE, expired_by, library_versions, machine_versions, versions_of
from hardware.inventory_diff import compare_inventories, comparison_text
from hardware.inventory_file import load_inventory
from hardware.inventory_summary import WIDTH
from hardware.inventory_text import list_text
from hardware.recording import INDEX
from hwcompat.cli.device_commands import devices_group as main

H100 = {
    "vendor": "NVIDIA",
    "index": 0,
    "model": "NVIDIA H100",
    "memory_bytes": 80 * 2**30,
    "driver_version": "580.10",
    "extra_info": {},
}


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    words = ["list", "--format", "json", "--replay", str(computer("graviton3").folder)]
    plain: dict[str, Any] = json.loads(CliRunner().invoke(main, words).stdout)
    versions = dict.fromkeys(("torch", "transformers", "openvino", "numpy"), "1.0")
    return changed(plain, packages={**plain["packages"], **versions})


def changed(inventory: dict[str, Any], **values: Any) -> dict[str, Any]:
    other = copy.deepcopy(inventory)
    for name, value in values.items():
        area, _, field = name.partition("__")
        if field:
            other[area][field] = value
        else:
            other[area] = value
    return other


def found(before: dict[str, Any], after: dict[str, Any]) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {(one.area, one.name): (one.before, one.after) for one in compare_inventories(before, after).differences}


def test_the_same_machine_differs_in_nothing(here):
    busy = changed(here, memory__available_bytes=1, memory__total_bytes=here["memory"]["total_bytes"] - 4096)
    assert not compare_inventories(here, busy).differences
    assert comparison_text(compare_inventories(here, busy)) == "No differences.\n"


def test_a_package_of_another_version_expires_evidence(here):
    packages = {**here["packages"], "openvino": "2099.1", "numpy": "99.0"}
    compared = compare_inventories(here, changed(here, packages=packages))
    by_name = {one.name: one for one in compared.differences}
    assert by_name["openvino"].expires == ("openvino",)
    assert by_name["numpy"].expires == ()
    assert compared.expires == ("openvino",)
    assert "Evidence expires for: openvino" in comparison_text(compared)
    schema = Path(module.__file__).parent / "schemas" / "comparison.json"
    jsonschema.validate(json.loads(json.dumps(compared.to_dict())), json.loads(schema.read_text(encoding="utf-8")))
    removed = {name: version for name, version in here["packages"].items() if name != "transformers"}
    assert found(here, changed(here, packages=removed)) == {("version", "transformers"): ("1.0", "absent")}


def test_devices_are_matched_by_number_and_a_driver_expires_evidence(here):
    one = changed(here, accelerators=[H100])
    two = changed(
        here,
        accelerators=[
            {**H100, "driver_version": "590.1", "model": "NVIDIA H200"},
            {**H100, "driver_version": "590.1", "index": 1},
        ],
    )
    differences = found(one, two)
    assert differences["device", "NVIDIA 0 model"] == ("NVIDIA H100", "NVIDIA H200")
    assert differences["device", "NVIDIA 1"] == (None, "NVIDIA H100")
    assert "cuda" in compare_inventories(one, two).expires
    assert found(two, one)["device", "NVIDIA 1"] == ("NVIDIA H100", None)


def test_another_processor_memory_or_disk_is_named_and_expires_nothing(here):
    other = changed(here, cpu__model="Another", memory__total_bytes=2**40)
    compared = compare_inventories(here, other)
    assert {(one.area, one.name) for one in compared.differences} == {("cpu", "model"), ("memory", "total_bytes")}
    assert not compared.expires
    assert "1 TiB" in comparison_text(compared)
    disk = {"device_path": "/dev/nvme0n1", "model": "Disk", "capacity_bytes": 2**40}
    one, two = changed(here, storage=[disk]), changed(here, storage=[{**disk, "model": "Other"}])
    assert found(one, two) == {("storage", "/dev/nvme0n1 model"): ("Disk", "Other")}


def test_versions_are_those_that_evidence_names():
    inventory = detect(machine("nvidia/h100-x8"))
    plain = machine_versions(
        inventory.packages,
        [(one.vendor, one.driver_version, one.firmware_version) for one in inventory.accelerators],
        builds={name: getattr(inventory.torch, name) for name in ("cuda", "hip", "xpu")},
        python=inventory.host.python_version,
        macos=None,
    )
    assert library_versions(versions_of(inventory)) == plain | {"hwcompat": RELEASE}
    assert expired_by("checker/backend cpu") == ("cpu",)
    assert {"cpu", "openvino"} <= set(expired_by("checker/check backward"))
    assert "openvino" in expired_by("checker/export")
    assert "cpu" not in expired_by("checker/export")
    assert expired_by("hwcompat") == ()
    assert "cpu" in expired_by("torch")
    assert expired_by("nvidia_driver") == ("cuda",)
    assert expired_by("python") == ()


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["compare", *words], standalone_mode=False)


def test_the_exit_code_is_1_only_where_evidence_expires(here, tmp_path):
    files = {
        "a": here,
        "cpu": changed(here, cpu__model="Another"),
        "torch": changed(here, packages={**here["packages"], "torch": "9.9"}),
    }
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    same, processor, version = (run(str(tmp_path / "a"), str(tmp_path / name)) for name in files)
    assert [one.return_value for one in (same, processor, version)] == [0, 0, 1]
    told = json.loads(run(str(tmp_path / "a"), str(tmp_path / "torch"), "--format", "json").stdout)
    assert "cpu" in told["expires"]


def test_what_is_no_inventory_is_refused_with_the_command_that_makes_one(tmp_path):
    file = tmp_path / "broken.json"
    for text in ("", "[]", "{}", "null", '{"host": 1}', '{"accelerators": [1], "vendors": []}', "\x00"):
        file.write_text(text)
        with pytest.raises(BrokenInput, match="list --format json"):
            load_inventory(file)
    file.write_text("[" * 100_000)
    with pytest.raises(BrokenInput, match="are nested more than 100 deep"):
        load_inventory(file)
    with pytest.raises(BrokenInput, match="can't read"):
        load_inventory(tmp_path / "none.json")


def test_an_inventory_of_another_shape_is_refused(here, tmp_path):
    for area, value in (
        ("memory", {"total_bytes": "much"}),
        ("packages", {"torch": 2}),
        ("torch", {"version": [1]}),
        ("targets", 1),
        ("targets", ["cpu"]),
        ("storage", [None]),
        ("accelerators", [{"vendor": "NVIDIA", "driver_version": 580}]),
        ("accelerators", [{"vendor": "NVIDIA", "extra_info": [1]}]),
    ):
        (tmp_path / "a.json").write_text(json.dumps(changed(here, **{area: value})))
        with pytest.raises(BrokenInput, match=f"its {area} is not valid for a machine"):
            load_inventory(tmp_path / "a.json")


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
