"""A model that isn't here is unknown on every way out, and a tiny model runs in its place only if that is allowed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from command_line import CommandLine, Ran

ROOT = Path(__file__).parents[2]
MISSING = "acme/distilbert-ranker"
CELL = "acme--distilbert-ranker/fill-mask/cpu/float32"


@pytest.fixture(scope="module")
def missing(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("missing")
    return command_line.run(folder, "--model", MISSING, "--model", "bert", "--device", "cpu", "--run")


@pytest.mark.extended
def test_a_hub_id_that_is_not_cached_is_unknown_with_the_command_that_fetches_it(missing: Ran) -> None:
    assert missing.code == 1
    assert missing.verdict(CELL) == "unknown"
    assert f"hf download {MISSING}" in " ".join(missing.out.split())
    assert missing.verdict("bert/fill-mask/cpu/float32") == "high"
    assert not list((missing.folder / "suites").glob("test_acme*"))


def test_every_report_of_the_run_says_so(missing: Ran) -> None:
    reports = missing.folder / "reports"
    (junit,) = reports.glob("*.xml")
    suite = ElementTree.parse(junit).find(f"testsuite[@name='{CELL}']")
    assert suite is not None
    assert int(suite.get("errors", "0")) == int(suite.get("tests", "0")) > 0
    (data,) = (json.loads(path.read_text()) for path in reports.glob("*.json"))
    assert {one["cell"]: one["level"] for one in data["verdicts"]}[CELL] == "unknown"
    assert {one["cell"]: one["fault"] for one in data["verdicts"]}[CELL] == "harness"
    assert "weights_missing" in {one["error_type"] for one in data["errors"]}


def test_matrix_and_explain_agree_with_the_run(missing: Ran, command_line: CommandLine) -> None:
    evidence = ("--evidence", missing.folder / "evidence")
    ran = command_line.run(missing.folder, "--hardware-compatibility", "--format", "json", *evidence)
    rows = json.loads(ran.out)["models"]
    assert rows["acme--distilbert-ranker/fill-mask/float32"]["compatibility"]["cpu"]["level"] == "unknown"
    ran = command_line.run(missing.folder, "--explain", CELL, *evidence)
    assert (ran.code, f"hf download {MISSING}" in " ".join(ran.out.split())) == (0, True), ran.err


@pytest.mark.nightly
def test_a_tiny_model_runs_under_its_types_name_if_that_is_allowed(command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--model", MISSING, "--device", "cpu", "--run", "--allow-tiny")
    assert ran.code == 0
    assert re.search(r"/cpu/float32 +tiny ", ran.out)
    assert f"{MISSING}: unknown" in " ".join(ran.out.split())
    assert ran.verdict("distilbert/fill-mask/cpu/float32") == "high"
    assert not any(CELL in path.read_text() for path in (tmp_path / "evidence").iterdir())


@pytest.mark.nightly
def test_the_lock_takes_no_stand_in(command_line: CommandLine, tmp_path: Path) -> None:
    project = tmp_path / "hwcompat.toml"
    text = f'schema_version = 1\n[defaults]\ntargets = ["cpu"]\n[[model]]\nname = "{MISSING}"\n'
    for options in ((), ("--allow-tiny",)):
        project.write_text(text)
        ran = command_line.run(tmp_path, "--config", project, "--run", "--update-expected", *options)
        assert ran.code == (0 if options else 1), ran.err
        assert '"high"' not in project.read_text()


def step(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the shell of a step of the action, as GitHub does."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = (one["run"] for one in action["runs"]["steps"] if one["name"] == name)
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "python").unlink(missing_ok=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    given = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "HF_HUB_OFFLINE": "1",
        **environment,
    }
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.extended
def test_the_action_fails_for_a_model_that_is_not_cached(command_line: CommandLine, tmp_path: Path) -> None:
    for fail_on, allow_tiny, code in (("error", "false", 1), ("critical", "false", 1), ("error", "true", 0)):
        folder = tmp_path / f"{fail_on}-{allow_tiny}"
        folder.mkdir()
        inputs = {"MODEL": MISSING, "DEVICE": "cpu", "FAIL_ON": fail_on, "BASELINE": "", "ALLOW_TINY": allow_tiny}
        given = {**inputs, "SUITES": "suites", "NAME": "ci", "XDG_CACHE_HOME": str(command_line.cache)}
        ran = step("Run the suites", folder, **given)
        assert ran.returncode == 0, ran.stderr
        assert (folder / "outputs").read_text() == f"code={code}\n", ran.stdout + ran.stderr
        shown = step("Show what they found", folder, **given)
        assert shown.returncode == 0, shown.stderr
        assert ("::error" in shown.stdout and "hf download" in shown.stdout) is bool(code)
        assert step("Say whether it failed", folder, CODE=str(code)).returncode == code
