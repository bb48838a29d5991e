"""Runs of one cell made by hand, a machine like theirs, and what holds there."""

from __future__ import annotations

from types import SimpleNamespace

from generators.compatibility.judge import judge, required_checks
from generators.compatibility.matrix import current_matrix
from generators.compatibility.verdict import Basis, Level
from generators.compatibility.verdict_cache import judged_of
from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Outcome, PlannedCell, RunLine
from hardware.evidence.revisions import checker_versions
from hardware.evidence.store import Evidence
from hardware.software import TorchBuild

CELL = Cell.parse("bert/fill-mask/cuda/float32")
CHECKS = required_checks(CELL)
PACKAGES = {"torch": "2.13.0", "transformers": "5.5.4"}
DRIVER = "580.1"


def inventory(**packages: str | None) -> SimpleNamespace:
    host = SimpleNamespace(system="Linux", release="6.0", python_version="3.11.9")
    device = SimpleNamespace(vendor="NVIDIA", driver_version=DRIVER, firmware_version=None)
    return SimpleNamespace(
        host=host, packages={**PACKAGES, **packages}, accelerators=(device,), torch=TorchBuild(version="2.13.0")
    )


def line(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    values = {
        "run_id": "r1",
        "cell_id": CELL.id,
        "check_name": check,
        "outcome": outcome,
        "subject": "tiny",
        "requested_target": "cuda",
        "actual_target": "cuda:0",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "suite_hash": "h",
        "started_at": "2026-01-01T00:00:01Z",
        "duration_s": 0.1,
        "accelerator": "H200",
        "actual_dtype": "float32",
        "max_rel_error": 1e-6,
        "tolerance": 2e-5,
        "native_ops": {"aten.addmm": 3} if check == "runs_natively" else {},
    }
    return CheckLine(**{**values, **changes})


def passed(**changes: object) -> list[CheckLine]:
    return [line(check, **changes) for check in CHECKS]


def run(run_id: str = "r1", day: int = 1, **changes: object) -> RunLine:
    planned = {"cell_id": CELL.id, "checks": CHECKS, "suite": "s.py", "suite_hash": "h", "subject": "tiny"}
    planned |= {name: changes.pop(name) for name in list(changes) if name in {*planned, "modeling"}}
    values = {
        "run_id": run_id,
        "started_at": f"2026-01-{day:02}T00:00:00Z",
        "command": "",
        "machine": "here",
        "inventory": {},
        "versions": {**PACKAGES, "nvidia_driver": DRIVER, **checker_versions()},
        "plan": (PlannedCell(**planned),),
    }
    return RunLine(**{**values, **changes})


def later(day: int, **changes: object) -> dict[str, object]:
    return {"run_id": f"r{day}", "started_at": f"2026-01-{day:02}T00:00:01Z", **changes}


def evidence(*runs: RunLine, lines: list[CheckLine]) -> Evidence:
    return Evidence(runs=runs, checks=tuple(lines), ends=(), broken=())


def ask(found: Evidence, here: SimpleNamespace | None = None, **changes: object):
    """The verdict of the cell; `weights_asked` and `own_limit` are of that cell."""
    given = {
        "weights_asked": {CELL.id: changes["weights_asked"]} if "weights_asked" in changes else {},
        "own_limits": {CELL.id: changes["own_limit"]} if "own_limit" in changes else {},
    }
    return judge(read_latest(found), here or inventory(), cells=[CELL.id], **given)[0]


def matrix(found: Evidence, here: SimpleNamespace | None = None, **how: str):
    here = here or inventory()
    return current_matrix(judged_of(read_latest(found), here), here, timestamp="now", **how)


def says(verdict) -> tuple[Level, Basis]:
    return verdict.level, verdict.basis


HIGH = (Level.HIGH, Basis.MEASURED)
OLD = (Level.HIGH, Basis.EXPIRED)
