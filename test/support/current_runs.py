"""Runs of one cell made by hand, an inventory of their machine, and the verdicts that they give there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

from evidence_lines import MEASURED, check_line, planned_cell, run_line

from generators.compatibility.judge import judge
from generators.compatibility.matrix import current_matrix
from generators.compatibility.required_checks import required_checks
from generators.compatibility.verdict import Basis, Level, Verdict
from generators.compatibility.verdict_cache import judged_of
from generators.models.recipe_store import stored_recipes
from hardware.cell import Cell
from hardware.evidence.latest import read_latest
from hardware.evidence.record import CheckLine, Outcome, RunLine
from hardware.evidence.revisions import checker_versions
from hardware.evidence.store import Evidence
from hardware.software import TorchBuild
from hardware.testing.checks import call_checks

CELL = Cell.parse("bert/fill-mask/cuda/float32")
CHECKS = required_checks(CELL)
PACKAGES = {"torch": "2.13.0", "transformers": "5.5.4"}
DRIVER = "580.1"
PLANNED = ("cell_id", "checks", "suite", "suite_hash", "subject", "modeling")


def inventory(**packages: str | None) -> SimpleNamespace:
    host = SimpleNamespace(system="Linux", release="6.0", python_version="3.11.9")
    device = SimpleNamespace(
        vendor="NVIDIA", driver_version=DRIVER, firmware_version=None, compute_capability=None, simulated=False
    )
    return SimpleNamespace(
        host=host, packages={**PACKAGES, **packages}, accelerators=(device,), torch=TorchBuild(version="2.13.0")
    )


def line(check: str, outcome: Outcome = Outcome.PASSED, /, **changes: object) -> CheckLine:
    values = {
        **MEASURED,
        "cell_id": CELL.id,
        "requested_target": "cuda",
        "actual_target": "cuda:0",
        "precision": "float32",
        "model": "bert",
        "task": "fill-mask",
        "accelerator": "H200",
        "native_ops": {"aten.addmm": 3} if check == "runs_natively" else {},
    }
    return check_line(check, outcome, **{**values, **changes})


def passed(**changes: object) -> list[CheckLine]:
    return [line(check, **changes) for check in CHECKS]


def run(run_id: str = "r1", day: int = 1, **changes: object) -> RunLine:
    planned = {"cell": CELL.id, "checks": CHECKS}
    planned |= {name: changes.pop(name) for name in list(changes) if name in PLANNED}
    values = {
        "run_id": run_id,
        "started_at": f"2026-01-{day:02}T00:00:00Z",
        "machine": "here",
        "versions": {**PACKAGES, "nvidia_driver": DRIVER, **checker_versions()},
        "plan": (planned_cell(planned.pop("cell_id", planned.pop("cell")), **planned),),
    }
    return run_line(**{**values, **changes})


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


@functools.cache
def _models() -> tuple[str, ...]:
    """Model types that have the same checks as the cell's, but for some of those that only some models have."""
    types = [recipe.model_type for recipe in stored_recipes() if recipe.task == CELL.task]
    found = {name: set(required_checks(replace(CELL, model=name))) for name in types}
    return tuple(name for name, own in found.items() if set(CHECKS) - call_checks() <= own <= set(CHECKS))


def _of_model(found: Evidence, model: str) -> Evidence:
    def named(cell_id: str) -> str:
        return cell_id.replace(f"{CELL.model}/", f"{model}/", 1)

    runs = [
        replace(
            run,
            run_id=f"{model}-{run.run_id}",
            plan=tuple(replace(one, cell_id=named(one.cell_id)) for one in run.plan),
        )
        for run in found.runs
    ]
    lines = [
        replace(line, run_id=f"{model}-{line.run_id}", cell_id=named(line.cell_id), model=model)
        for line in found.checks
    ]
    return Evidence(runs=tuple(runs), checks=tuple(lines))


def judged(
    scenarios: Mapping[str, Evidence], here: SimpleNamespace | None = None, *, cell: Cell = CELL, weights: str = ""
) -> dict[str, Verdict]:
    """Return the verdict of a cell in each scenario. All are judged at once, each as the cell of another model."""
    models = dict(zip(scenarios, _models(), strict=False))
    assert len(models) == len(scenarios)
    parts = [_of_model(scenarios[name], model) for name, model in models.items()]
    runs = tuple(run for part in parts for run in part.runs)
    whole = Evidence(runs=runs, checks=tuple(line for part in parts for line in part.checks))
    ids = {name: replace(cell, model=model).id for name, model in models.items()}
    asked = dict.fromkeys(ids.values(), weights) if weights else {}
    verdicts = judge(read_latest(whole), here or inventory(), cells=list(ids.values()), weights_asked=asked)
    by_cell = {verdict.cell: verdict for verdict in verdicts}
    return {name: by_cell[id_] for name, id_ in ids.items()}


def matrix(found: Evidence, here: SimpleNamespace | None = None, **how: str):
    here = here or inventory()
    return current_matrix(judged_of(read_latest(found), here), here, timestamp="now", **how)


def says(verdict) -> tuple[Level, Basis]:
    return verdict.level, verdict.basis


HIGH = (Level.HIGH, Basis.MEASURED)
OLD = (Level.HIGH, Basis.EXPIRED)
