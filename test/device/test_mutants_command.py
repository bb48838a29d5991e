"""The command that breaks suites, run over one suite of a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_command_kills_a_mutant_in_a_child_and_passes_clean_runs(tmp_path: Path) -> None:
    command = ["--model", "vit", "--operator", "wrong_precision", "--clean", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants", *command, str(tmp_path / "out.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed 1 of 1 mutants" in done.stdout
    assert "clean runs that raised something: 0 of 2" in done.stdout
    mutant = json.loads((tmp_path / "out.json").read_text())[0]
    found = {key: mutant[key] for key in ("operator", "status", "site")}
    assert found == {"operator": "wrong_precision", "status": "killed", "site": "all outputs"}
