"""Folders of evidence that the product's own writer wrote, some of it expired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from recorded_machines import machine

from generators.compatibility.required_checks import required_checks
from generators.models.recipe_store import load_recipe
from generators.options import Options
from hardware.cell import Cell
from hardware.detection import HardwareInfo, detect
from hardware.evidence.record import CheckLine, EndLine, Outcome, PlannedCell, RunLine
from hardware.evidence.store import read_folder
from hardware.evidence.versions import versions_of
from hardware.evidence.writer import EvidenceWriter
from hardware.software import TorchBuild
from hwcompat.plugins.study.refresh.refresh_plan import RefreshPlan, plan_refresh
from reports.reason_text import texts

BERT, GPT2, VIT = (
    "bert/fill-mask/cpu/float32",
    "gpt2/text-generation/cpu/float32",
    "vit/image-classification/cpu/float32",
)
ON_CUDA = "bert/fill-mask/cuda/float32"
OLD = {"torch": "1.0"}


def bare_machine() -> HardwareInfo:
    """A machine without accelerators."""
    found = detect(machine("machines/xeon-two-sockets"))
    return replace(found, accelerators=(), vendors=(), torch=TorchBuild(version="2.13.0+cpu"))


class Folder:
    """A folder of evidence, filled through the product's own writer."""

    def __init__(self, path: Path, here: HardwareInfo) -> None:
        self.path, self.here = path, here

    def write(
        self,
        run_id: str,
        *cells: str,
        versions: Mapping[str, str] | None = None,
        checks: Mapping[str, int] | None = None,
        ended: bool = True,
        subject: str = "tiny",
        outcome: Outcome = Outcome.PASSED,
        **of_run: object,
    ) -> None:
        """A run of cells whose checks take a second each; `checks` says of cells how many of them were reached."""
        planned = [
            PlannedCell(
                cell_id=id_,
                checks=required_checks(Cell.parse(id_)),
                suite="s.py",
                suite_hash="h",
                subject=subject,
                recipe=recipe.digest if subject == "tiny" and (recipe := load_recipe(id_.split("/")[0])) else None,
            )
            for id_ in cells
        ]
        values: dict[str, object] = {
            "run_id": run_id,
            "started_at": f"2026-01-0{run_id[-1]}T00:00:00+00:00",
            "command": "",
            "machine": "here",
            "inventory": {},
            "versions": {**versions_of(self.here), **(versions or {})},
            "plan": tuple(planned),
        }
        writer = EvidenceWriter(self.path, run_id)
        writer.write(RunLine(**{**values, **of_run}))
        for one in planned:
            for check in one.checks[: (checks or {}).get(one.cell_id)]:
                writer.write(self._line(run_id, one, check, outcome))
        if ended:
            moment = f"2026-01-0{run_id[-1]}T00:01:00+00:00"
            writer.write(EndLine(run_id=run_id, ended_at=moment, reason="finished", counts={}))
        writer.close()

    def _line(self, run_id: str, planned: PlannedCell, check: str, outcome: Outcome) -> CheckLine:
        cell = Cell.parse(planned.cell_id)
        return CheckLine(
            run_id=run_id,
            cell_id=cell.id,
            check_name=check,
            outcome=outcome,
            subject=planned.subject,
            requested_target=str(cell.target),
            actual_target=str(cell.target),
            precision=cell.precision,
            actual_dtype=cell.precision,
            model=cell.model,
            task=cell.task,
            suite_hash="h",
            started_at=f"2026-01-0{run_id[-1]}T00:00:10+00:00",
            duration_s=1.0,
            max_rel_error=1e-7,
            tolerance=1e-6,
            native_ops={"aten.mm": 1},
        )

    def plan(self, **options: object) -> RefreshPlan:
        return plan_refresh(
            self.asked(**options), read_folder(self.path), self.here, "here", None, read_list=lambda: ["gpt2"]
        )

    def left(self) -> dict[str, str]:
        """Why cells stay expired, in words, by cell id."""
        return {cell: "; ".join(texts(reasons)) for cell, reasons in self.plan().left.items()}

    def asked(self, **options: object) -> Options:
        values: dict[str, object] = {
            "evidence": self.path,
            "output_dir": self.path.parent / "suites",
            "machine": "here",
        }
        return Options(**{**values, **options})


def ids(plan: RefreshPlan) -> list[str]:
    return [one.cell.id for one in plan.cells]
