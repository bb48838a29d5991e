"""Evidence expires with what its backend says it rests on, and with nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from generators.compatibility.expiry import Expiry
from generators.compatibility.judge import judge_cell, required_checks
from generators.compatibility.verdict import Basis, Level, Verdict
from hardware.backends.factory import backend_class, built_in_targets
from hardware.cell import GRAPH_TASK, Cell
from hardware.evidence.record import CheckLine, Outcome
from hardware.evidence.versions import FAULT_VARIABLE, SDK_VARIABLE, relevant_versions, versions_of
from hardware.software import TorchBuild
from reports.reason_text import texts

VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "qualcomm": "Qualcomm"}
NARROW, WIDE = 1e-6, 1e-3


@pytest.fixture(autouse=True)
def no_recipes_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


def inventory(known: dict[str, str]) -> SimpleNamespace:
    """What `detect` would give on a machine with these versions, by the names that evidence has for them."""
    devices = [
        SimpleNamespace(
            vendor=name, driver_version=known.get(f"{key}_driver"), firmware_version=known.get(f"{key}_firmware")
        )
        for key, name in VENDORS.items()
    ]
    host = SimpleNamespace(
        system="Darwin" if "macos" in known else "Linux", release=known.get("macos", "6.0"), python_version="3.11.9"
    )
    builds = {name: known.get(f"{name} (torch)") for name in ("cuda", "hip", "xpu")}
    elsewhere = {"macos", *(f"{key}_{part}" for key in VENDORS for part in ("driver", "firmware"))}
    packages = {name: version for name, version in known.items() if name not in elsewhere}
    return SimpleNamespace(
        host=host, packages=packages, accelerators=tuple(devices), torch=TorchBuild(version="2.13.0", **builds)
    )


def lines_of(cell: Cell, **changes: object) -> list[CheckLine]:
    values = {
        "run_id": "r1",
        "cell_id": cell.id,
        "outcome": Outcome.PASSED,
        "subject": "tiny",
        "requested_target": str(cell.target),
        "actual_target": str(cell.target),
        "precision": cell.precision,
        "model": cell.model,
        "task": cell.task,
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:01Z",
        "duration_s": 0.1,
        "actual_dtype": cell.precision,
        "max_rel_error": 1e-7,
        "tolerance": NARROW,
        "native_ops": {"aten.addmm": 3},
        **changes,
    }
    return [CheckLine(check_name=check, **values) for check in required_checks(cell)]


def verdict(cell: Cell, then: dict[str, str], now: dict[str, str]) -> Verdict:
    return judge_cell(
        cell,
        required_checks(cell),
        lines_of(cell),
        expiry=Expiry(cell=cell, now=now, then={"r1": then}),
    )


def declared() -> list[tuple[str, str]]:
    """Every cell and name that a backend of ours declares, in each of its ways."""
    found = []
    for target in built_in_targets():
        backend = backend_class(target)
        found += [(f"bert/fill-mask/{target}/float32", name) for name in backend.EXPIRES_ON]
        for kind, names in backend.EXPIRES_ALSO_ON.items():
            cell = f"bert/fill-mask/{target}/float32"
            if kind in backend.VARIANTS:
                cell = f"bert/fill-mask/{target}:{kind}/float32"
            elif kind in backend.PRECISIONS:
                cell = f"bert/fill-mask/{target}/{kind}"
            elif kind == GRAPH_TASK:
                cell = f"graph.onnx/{kind}/{target}/float32"
            found += [(cell, name) for name in names]
    return found


@pytest.mark.parametrize(("cell", "name"), declared())
def test_a_change_of_what_a_backend_declares_expires_its_evidence_and_is_named(cell, name, monkeypatch, tmp_path):
    asked = Cell.parse(cell)
    known = dict.fromkeys((*backend_class(asked.target.name).EXPIRES_ON, name, "numpy", "pytest"), "1.0")
    then = versions_of(inventory(known))
    if name == "simulated_fault":
        monkeypatch.setenv(FAULT_VARIABLE, "nan")
    elif name == "qnn_sdk":
        (tmp_path / "lib" / "x86_64-linux-clang").mkdir(parents=True)
        (tmp_path / "lib" / "x86_64-linux-clang" / "libQnnHtp.so").write_bytes(b"another release")
        monkeypatch.setenv(SDK_VARIABLE, str(tmp_path))
    now = versions_of(inventory({**known, name: "2.0"}))
    same, moved = verdict(asked, then, then), verdict(asked, then, now)
    assert (same.level, same.basis) == (Level.HIGH, Basis.MEASURED)
    assert (moved.level, moved.basis) == (Level.HIGH, Basis.EXPIRED)
    assert f"measured with {name} {then.get(name, 'absent')}, now {now[name]}" in texts(moved.reasons)


@pytest.mark.parametrize("target", [*built_in_targets(), "openvino:GPU", "tpu:xla-cpu"])
def test_a_change_of_anything_else_expires_nothing(target):
    cell = Cell.parse(f"bert/fill-mask/{target}/float32")
    backend = backend_class(cell.target.name)
    own = {*backend.EXPIRES_ON, *backend.EXPIRES_ALSO_ON.get(cell.target.variant, ())}
    every = {name for one in built_in_targets() for name in backend_class(one).EXPIRES_ON} - {"macos"}
    known = dict.fromkeys((*every, *own, "numpy", "pytest", "nncf"), "1.0")
    others = {name: "2.0" for name in known if name not in own}
    assert {"numpy", "pytest"} < set(others)
    then, now = versions_of(inventory(known)), versions_of(inventory({**known, **others}))
    assert then != now
    assert verdict(cell, then, now).basis is Basis.MEASURED


def test_two_devices_of_a_vendor_with_two_drivers_are_both_named():
    found = inventory({})
    found.accelerators = tuple(
        SimpleNamespace(vendor="Intel", driver_version=version, firmware_version=None) for version in ("2", "1", "2")
    )
    assert versions_of(found)["intel_driver"] == "1, 2"


def test_openvinos_own_cpu_does_not_expire_with_a_gpus_driver():
    cells = [Cell.parse(f"bert/fill-mask/openvino{variant}/float32") for variant in ("", ":CPU", ":NPU", ":AUTO")]
    assert ["intel_driver" in relevant_versions(cell, {}) for cell in cells] == [False, False, True, True]


@pytest.mark.parametrize(
    ("outcome", "error", "limit", "now", "expired"),
    [
        (Outcome.PASSED, 1e-7, WIDE, NARROW, True),
        (Outcome.PASSED, 1e-7, NARROW, WIDE, False),  # it proves more than is asked
        (Outcome.FAILED, 1e-4, NARROW, WIDE, True),
        (Outcome.FAILED, 1e-2, WIDE, NARROW, False),
        (Outcome.PASSED, 1e-7, WIDE, WIDE, False),
    ],
)
def test_a_tolerance_under_which_it_would_be_decided_otherwise_expires_it(outcome, error, limit, now, expired):
    cell = Cell.parse("bert/fill-mask/cpu/float32")
    lines = [
        one
        if one.check_name != "matches_reference"
        else CheckLine(**{**vars(one), "outcome": outcome, "max_rel_error": error, "tolerance": limit})
        for one in lines_of(cell)
    ]
    found = judge_cell(
        cell,
        required_checks(cell),
        lines,
        expiry=Expiry(cell=cell, now={}, then={"r1": {}}, own_limit=now),
    )
    said = f"measured with a tolerance of {limit:g}, now {now:g}"
    assert (found.basis is Basis.EXPIRED) is expired
    assert (said in texts(found.reasons)) is expired
