"""`hwcompat evidence refresh` as a user starts it: expired cells run again into the same folder, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from command_line import CommandLine, Ran

from hardware.evidence.record import Outcome
from hardware.evidence.writer import EvidenceWriter

pytestmark = pytest.mark.slow

EXPIRED = "vit/image-classification/simulated/float32"


@pytest.mark.extended
def test_what_expired_is_measured_again_and_nothing_else(three_targets: Ran, command_line: CommandLine, tmp_path):
    before = three_targets.evidence
    (run,) = before.runs
    old = replace(run, run_id=f"{run.run_id}-old", versions={**run.versions, "torch": "1.0"})
    for one, of_old in ((run, False), (old, True)):
        writer = EvidenceWriter(tmp_path / "evidence", one.run_id)
        writer.write(replace(one, plan=tuple(p for p in one.plan if (p.cell_id == EXPIRED) is of_old)))
        for line in (line for line in before.checks if (line.cell_id == EXPIRED) is of_old):
            writer.write(replace(line, run_id=one.run_id))
        for end in before.ends:
            writer.write(replace(end, run_id=one.run_id))
        writer.close()

    ran = command_line.run(tmp_path, "--refresh", "--jobs", "1")

    assert ran.code == 0, ran.err
    assert "1 of 6 measured cell(s) have expired" in ran.err
    assert "Refreshed   1 of 1 expired cell(s)" in ran.out
    assert ran.verdict(EXPIRED) == "high"
    fresh = [one for one in ran.evidence.runs if one.run_id not in (run.run_id, old.run_id)]
    assert [[planned.cell_id for planned in one.plan] for one in fresh] == [[EXPIRED]]
    lines = [line for line in ran.evidence.checks if line.run_id == fresh[0].run_id]
    assert {line.outcome for line in lines} == {Outcome.PASSED}
    assert fresh[0].command.startswith("hwcompat evidence refresh ")
    assert ran.network == []
