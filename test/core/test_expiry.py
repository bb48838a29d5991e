"""Evidence expires with what its backend says it rests on, and with nothing else.

Plans of a refresh: expired cells and no others, as data and as a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from evidence_lines import check_line
from expired_folder import BERT, GPT2, OLD, ON_CUDA, VIT, Folder, bare_machine, ids

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Basis, Level, Reason, Verdict
from hardware.backends.factory import backend_class, built_in_targets
from hardware.cell import GRAPH_TASK, Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.versions import FAULT_VARIABLE, SDK_VARIABLE, relevant_versions, versions_of
from hardware.software import TorchBuild
from hwcompat.plugins.study.refresh.refresh_plan import suites_of
from hwcompat.plugins.study.refresh_command import refresh_json, refresh_table
from reports.reason_text import texts

VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "qualcomm": "Qualcomm"}
NARROW, WIDE = 1e-6, 1e-3


def inventory(known: Mapping[str, str]) -> SimpleNamespace:
    """Return what `detect` gives on a machine with these versions, by the names that evidence has for them."""
    devices = [
        SimpleNamespace(
            vendor=name, driver_version=known.get(f"{key}_driver"), firmware_version=known.get(f"{key}_firmware")
        )
        for key, name in VENDORS.items()
    ]
    system = "Darwin" if "macos" in known else "Linux"
    host = SimpleNamespace(system=system, release=known.get("macos", "6.0"), python_version="3.11.9")
    builds = {name: known.get(f"{name} (torch)") for name in ("cuda", "hip", "xpu")}
    elsewhere = {"macos", *(f"{key}_{part}" for key in VENDORS for part in ("driver", "firmware"))}
    packages = {name: version for name, version in known.items() if name not in elsewhere}
    torch = TorchBuild(version="2.13.0", **builds)
    return SimpleNamespace(host=host, packages=packages, accelerators=tuple(devices), torch=torch)


def lines_of(cell: Cell) -> list[CheckLine]:
    facts = {"actual_dtype": cell.precision, "max_rel_error": 1e-7, "tolerance": NARROW}
    native = {"native_ops": {"aten.addmm": 3}}
    return [check_line(check, cell_id=cell.id, **facts, **native) for check in required_checks(cell)]


def verdict(cell: Cell, then: Mapping[str, str], now: Mapping[str, str]) -> Verdict:
    expiry = Expiry(cell=cell, now=now, then={"r1": then})
    return judge_cell(cell, required_checks(cell), lines_of(cell), expiry=expiry)


def declared() -> Iterator[tuple[str, str]]:
    """Yield every cell and name that a backend of ours declares, in each of its ways."""
    for target in built_in_targets():
        backend = backend_class(target)
        for name in backend.EXPIRES_ON:
            yield f"bert/fill-mask/{target}/float32", name
        for kind, names in backend.EXPIRES_ALSO_ON.items():
            cell = f"bert/fill-mask/{target}/float32"
            if kind in backend.VARIANTS:
                cell = f"bert/fill-mask/{target}:{kind}/float32"
            elif kind in backend.PRECISIONS:
                cell = f"bert/fill-mask/{target}/{kind}"
            elif kind == GRAPH_TASK:
                cell = f"graph.onnx/{kind}/{target}/float32"
            yield from ((cell, name) for name in names)


def versions_with_another(name: str, known: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """Return the versions of a machine after one thing changed: a package, a driver, an SDK, or an injected fault."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "simulated_fault":
            patch.setenv(FAULT_VARIABLE, "nan")
        elif name == "qnn_sdk":
            library = folder / "lib" / "x86_64-linux-clang" / "libQnnHtp.so"
            library.parent.mkdir(parents=True, exist_ok=True)
            library.write_bytes(b"another release")
            patch.setenv(SDK_VARIABLE, str(folder))
        return versions_of(inventory({**known, name: "2.0"}))


def test_a_change_of_what_a_backend_declares_expires_its_evidence_and_is_named(tmp_path: Path) -> None:
    wrong = []
    for text, name in declared():
        cell = Cell.parse(text)
        known = dict.fromkeys((*backend_class(cell.target.name).EXPIRES_ON, name, "numpy", "pytest"), "1.0")
        then = versions_of(inventory(known))
        now = versions_with_another(name, known, tmp_path)
        same, moved = verdict(cell, then, then), verdict(cell, then, now)
        reason = f"measured with {name} {then.get(name, 'absent')}, now {now[name]}"
        found = (same.level, same.basis, moved.level, moved.basis, reason in texts(moved.reasons))
        if found != (Level.HIGH, Basis.MEASURED, Level.HIGH, Basis.EXPIRED, True):
            wrong.append((text, name, found))
    assert wrong == []


def test_a_change_of_anything_else_expires_nothing() -> None:
    wrong = []
    every = {name for one in built_in_targets() for name in backend_class(one).EXPIRES_ON} - {"macos"}
    for target in (*built_in_targets(), "openvino:GPU", "tpu:xla-cpu"):
        cell = Cell.parse(f"bert/fill-mask/{target}/float32")
        backend = backend_class(cell.target.name)
        own = {*backend.EXPIRES_ON, *backend.EXPIRES_ALSO_ON.get(cell.target.variant, ())}
        known = dict.fromkeys((*every, *own, "numpy", "pytest", "nncf"), "1.0")
        others = {name: "2.0" for name in known if name not in own}
        assert {"numpy", "pytest"} < set(others)
        then, now = versions_of(inventory(known)), versions_of(inventory({**known, **others}))
        assert then != now
        if verdict(cell, then, now).basis is not Basis.MEASURED:
            wrong.append(target)
    assert wrong == []


def test_drivers_are_named_and_count_for_the_devices_that_use_them() -> None:
    found = inventory({})
    found.accelerators = tuple(
        SimpleNamespace(vendor="Intel", driver_version=version, firmware_version=None) for version in ("2", "1", "2")
    )
    assert versions_of(found)["intel_driver"] == "1, 2"
    cells = [Cell.parse(f"bert/fill-mask/openvino{variant}/float32") for variant in ("", ":CPU", ":NPU", ":AUTO")]
    assert ["intel_driver" in relevant_versions(cell, {}) for cell in cells] == [False, False, True, True]


def test_a_tolerance_under_which_it_would_be_decided_otherwise_expires_it() -> None:
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    for outcome, error, limit, now, expired in (
        (Outcome.PASSED, 1e-7, WIDE, NARROW, True),
        (Outcome.PASSED, 1e-7, NARROW, WIDE, False),  # it proves more than is asked
        (Outcome.FAILED, 1e-4, NARROW, WIDE, True),
        (Outcome.FAILED, 1e-2, WIDE, NARROW, False),
        (Outcome.PASSED, 1e-7, WIDE, WIDE, False),
    ):
        changes = {"outcome": outcome, "max_rel_error": error, "tolerance": limit}
        lines = [replace(one, **changes) if one.check_name == "matches_reference" else one for one in lines_of(cell)]
        expiry = Expiry(cell=cell, now={}, then={"r1": {}}, own_limit=now)
        found = judge_cell(cell, required_checks(cell), lines, expiry=expiry)
        assert (found.basis is Basis.EXPIRED) is expired
        assert (f"measured with a tolerance of {limit:g}, now {now:g}" in texts(found.reasons)) is expired


SCHEMA = Path(__file__).parents[2] / "reports" / "schemas" / "refresh.json"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "evidence", bare_machine())


def test_what_expired_is_planned_and_what_holds_is_not(folder):
    folder.write("r1", BERT, GPT2, versions=OLD)
    folder.write("r2", BERT, VIT)
    plan = folder.plan()
    assert ids(plan) == [GPT2]
    assert plan.looked_at == 3
    now = versions_of(folder.here)["torch"]
    assert plan.cells[0].reasons == (Reason.of("versions_moved", moved=(f"torch 1.0, now {now}",)),)
    (suite,) = suites_of(plan, folder.asked(), folder.here, None)[0]
    assert (suite.cell.id, str(suite.device), suite.required) == (GPT2, "cpu", False)


def test_a_refresh_that_was_cut_off_leaves_the_rest_expired(folder):
    folder.write("r1", BERT, GPT2, VIT, versions=OLD)
    folder.write("r2", BERT, GPT2, VIT, checks={GPT2: 2, VIT: 0}, ended=False)
    plan = folder.plan()
    assert ids(plan) == [GPT2, VIT]
    assert len(plan.runnable) == 2


def test_the_plan_as_data_and_as_a_table(folder):
    folder.write("r1", BERT, ON_CUDA, versions={"torch": "1.0\x1b[31m\nno"})
    plan = folder.plan(jobs=1)
    data = json.loads(refresh_json(plan, "2026-01-01T00:00:00+00:00"))
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    assert [(one["cell"], one["runs_here"], bool(one["why_not"])) for one in data["cells"]] == [
        (BERT, True, False),
        (ON_CUDA, False, True),
    ]
    text = refresh_table(plan, 100)
    assert "2 of 2 measured cell(s) have expired; 1 can't be measured again here." in text
    assert "cuda isn't available here" in text
    assert "\x1b" not in text + json.dumps(data, ensure_ascii=False)
