"""The row of the matrix that a page shows beside its own result: what is said of a model on every target."""

from __future__ import annotations

from dataclasses import replace

from generators.compatibility.judge import judge, strongest_of
from generators.compatibility.rules import load_rules
from generators.compatibility.verdict import Verdict
from generators.compatibility.vocabulary import vocabulary
from generators.plan import PlannedSuite, predicted_for
from hardware.backends.factory import declarations_of
from hardware.detection import HardwareInfo
from hardware.evidence.latest import read_latest
from hardware.evidence.store import Evidence
from hardware.target import Target


def known_of(planned: PlannedSuite, inventory: HardwareInfo, evidence: Evidence | None) -> tuple[Verdict, ...]:
    """A verdict for each target: what rules predict, and what evidence shows where there is any."""
    predicted = predicted_for(planned.profile, planned.cell.precision, load_rules(), inventory)
    targets = [Target(name=name) for name in vocabulary().hardware_types if not declarations_of(name).SIMULATED]
    verdicts = [planned.verdict if target == planned.cell.target else predicted(target) for target in targets]
    if planned.cell.target not in targets:
        verdicts.append(planned.verdict)
    if evidence is None:
        return tuple(verdicts)
    own = tuple(line for line in evidence.checks if line.model == planned.cell.model)
    measured = {one.cell: one for one in judge(read_latest(replace(evidence, checks=own)), inventory)}
    return tuple(strongest_of(measured.get(one.cell, one), one) for one in verdicts)
