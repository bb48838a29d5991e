"""The workflow that `hwcompat init` writes: its steps run here, and machines merge into one report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml
from command_line import REPOSITORY, CommandLine

pytestmark = pytest.mark.slow


@pytest.mark.extended
def test_each_step_runs_and_the_last_job_reports_all_machines(command_line: CommandLine, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("pip", "true"), ("hwcompat", f'exec "{sys.executable}" -m hwcompat "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    summary = tmp_path / "summary"
    given = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "GITHUB_STEP_SUMMARY": str(summary),
        "XDG_CACHE_HOME": str(command_line.cache),
    }

    def run(script: str, folder: Path, matrix: Mapping[str, object] = MappingProxyType({})) -> None:
        for key, value in matrix.items():
            script = script.replace(f"${{{{ matrix.{key} }}}}", str(value))
        words = ["bash", "-e", "-c", script]
        done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"

    run("hwcompat init --model bert --device cpu --device openvino --ci github", tmp_path)
    jobs = yaml.safe_load((tmp_path / ".github" / "workflows" / "hwcompat.yml").read_text())["jobs"]
    for machine in jobs["compatibility"]["strategy"]["matrix"]["include"]:
        folder = tmp_path / machine["artifact"]
        folder.mkdir()
        (folder / "hwcompat.toml").write_bytes((tmp_path / "hwcompat.toml").read_bytes())
        for step in jobs["compatibility"]["steps"]:
            run(step.get("run", ""), folder, machine)
        place = tmp_path / "machines" / f"hwcompat-{machine['artifact']}"
        place.parent.mkdir(exist_ok=True)
        (folder / "hwcompat-out").rename(place)
    (build,) = jobs["report"]["strategy"]["matrix"]["include"]
    for step in jobs["report"]["steps"]:
        run(step.get("run", ""), tmp_path, build)
    text = summary.read_text()
    assert "- cpu: 1 cell: 1 works" in text
    assert "- openvino: 1 cell: 1 works" in text
