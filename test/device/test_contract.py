"""Backends keep what suites rely on, one from outside the repository too: each is asked in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import REPOSITORY, CommandLine, installed_example

from hardware.workers import environment_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_example("backend-plugin", tmp_path_factory.mktemp("plugin"))


def ask(name: str, cache: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HWCOMPAT_", "PYTEST_"))}
    path = os.pathsep.join(map(str, (*folders, REPOSITORY)))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "generators.contract", "--backend", name]
    return subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env=kept | {"PYTHONPATH": path, "HWCOMPAT_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_all_passed(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout


NO_XLA = environment_of("tpu").reason
XLA = pytest.param(
    "tpu:xla-cpu",
    marks=(pytest.mark.skipif(bool(NO_XLA), reason=f"target tpu isn't here: {NO_XLA}"), pytest.mark.extended),
)


@pytest.mark.parametrize("name", [pytest.param("openvino", marks=pytest.mark.extended), XLA])
def test_a_built_in_backend_keeps_the_contract(name: str, tmp_path: Path) -> None:
    assert_all_passed(ask(name, tmp_path))


def test_a_backend_from_outside_keeps_the_contract(plugin: Path, tmp_path: Path) -> None:
    assert_all_passed(ask("mychip", tmp_path, plugin))


def test_a_backend_that_is_not_here_or_unknown_keeps_no_contract(tmp_path: Path) -> None:
    ran = ask("cuda", tmp_path)
    assert ran.returncode == 1
    assert " errors in " in ran.stdout, "it fails, and skips nothing"
    assert "passed" in ran.stdout, "its name is known"
    ran = ask("nosuch", tmp_path)
    assert ran.returncode == 4
    assert "unknown device 'nosuch'" in ran.stderr + ran.stdout
    assert "Is its package installed" in ran.stderr + ran.stdout


def test_a_backend_that_breaks_the_contract_fails(tmp_path: Path) -> None:
    (tmp_path / "broken-1.dist-info").mkdir()
    (tmp_path / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (tmp_path / "broken-1.dist-info" / "entry_points.txt").write_text("[hwcompat.backends]\nbroken = broken:Broken\n")
    (tmp_path / "broken.py").write_text(
        "from hardware.backends.cpu import CPUBackend\n"
        "class Broken(CPUBackend):\n"
        "    BACKEND_NAME = 'broken'\n"
        "    def known_answer(self):\n"
        "        return 0.0, 0.0, 0.0\n"
    )
    ran = ask("broken", tmp_path / "cache", tmp_path)
    assert ran.returncode == 1, ran.stdout
    assert "test_it_gives_the_known_answer" in ran.stdout


def test_a_model_runs_on_a_backend_from_outside(plugin: Path, command_line: CommandLine, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (plugin, REPOSITORY)))
    ran = command_line.run(
        tmp_path, "--model", "bert", "--device", "mychip", "--run", env={"PYTHONPATH": path}, cwd=REPOSITORY
    )
    assert ran.code == 0, ran.out + ran.err
    assert ran.verdict("bert/fill-mask/mychip/float32") == "high"
    assert ran.lines("bert/fill-mask/mychip/float32")["runs_natively"].native_ops["aten.addmm"] > 0
