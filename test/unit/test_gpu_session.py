"""The session on a GPU, rehearsed on the processor: what it runs, keeps and packs."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gpu_session import operators
from benchmarks.gpu_session.__main__ import Session
from benchmarks.gpu_session.stages import PRECISIONS, Stage, stages

ROOT = Path(__file__).parents[2]


def names(backend: str, **how: object) -> list[str]:
    given = {"forks": True, "shares": 1, "memory_gb": 1.0} | how
    return [stage.name for stage in stages(backend, Path("folder"), **given)]  # type: ignore[arg-type]


def test_each_precision_of_the_target_is_tested() -> None:
    assert {f"parity-{precision}-1" for precision in PRECISIONS} < set(names("cuda"))
    assert "parity-tf32-1" not in names("cpu")
    assert {"parity-float32-1", "parity-float32-2"} < set(names("cpu", shares=2))
    assert len(names("cuda", shares=2)) == len(set(names("cuda", shares=2)))


def test_suites_run_in_fresh_processes_where_a_fork_fails() -> None:
    parity = [
        next(
            stage
            for stage in stages("cuda", Path("folder"), forks=forks, shares=1, memory_gb=1.0)
            if "parity" in stage.name
        )
        for forks in (True, False)
    ]
    assert ["benchmarks.gpu_session.unforked" in stage.words for stage in parity] == [False, True]


def raises(*_: object) -> Any:
    raise NotImplementedError("no kernel")


@pytest.mark.parametrize(
    ("compute", "outcome"),
    [
        (lambda x: x + 1, "computed"),
        (lambda x: x + 1 if x.dtype == torch.float64 else raises(), "raised"),
        (lambda x: x + 1 if x.dtype == torch.float64 else x[:1], "not compared"),
        (raises, "nothing to compare with"),
    ],
)
def test_what_comes_of_an_operator(compute: Any, outcome: str) -> None:
    class Operator:
        name, variant_test_name = "added", ""
        supported_dtypes = staticmethod(lambda _: {torch.float32})
        sample_inputs = staticmethod(lambda *_, **__: [SimpleNamespace(input=torch.ones(3), args=(), kwargs={})])
        __call__ = staticmethod(compute)

    assert operators._row(Operator(), "cpu", torch.float32)["outcome"] == outcome
    assert operators._row(Operator(), "cpu", torch.int64)["outcome"] == "unsupported"


@pytest.mark.parametrize("other", [float("nan"), float("-inf"), 1.0])
def test_infinity_agrees_with_itself_alone(other: float) -> None:
    infinite = torch.tensor([1.0, float("inf")])
    assert operators._error(infinite, infinite) == 0
    assert operators._error(torch.tensor([1.0, other]), infinite) == float("inf")


def test_a_stage_that_breaks_or_takes_too_long_costs_its_own_result_alone(tmp_path: Path) -> None:
    session = Session("cpu", tmp_path, time.monotonic() + 5, reserve=0)
    sleeps = (sys.executable, "-c", "import time; time.sleep(60)")
    for name, words in {"absent": ("no-such-program",), "fails": ("false",), "sleeps": sleeps}.items():
        session.run(Stage(name=name, words=words, turn=1))
    found = {one["stage"]: one["exit_code"] for one in session.found}
    assert found == {"absent": "No such file or directory", "fails": 1, "sleeps": "out of time"}
    with tarfile.open(tmp_path / "session.tar.gz") as packed:
        assert "session.json" in packed.getnames()


@pytest.mark.slow
def test_what_was_found_is_packed(tmp_path: Path) -> None:
    words = ("--backend", "cpu", "--folder", str(tmp_path), "--minutes", "4", "--reserve", "10")
    only = ("--only", "devices", "--only", "mutants-clip", "--only", "report")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_session", *words, *only],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {one["stage"]: one["exit_code"] for one in json.loads((tmp_path / "session.json").read_text())}
    assert (found["smoke"], found["devices"], found["mutants-clip"]) == (0, 0, 0)
    assert found["report"] == 0
    with tarfile.open(tmp_path / "session.tar.gz") as packed:
        kept = packed.getnames()
    assert {"summary.md", "devices.json", "mutants-clip.json", "smoke.txt"} <= set(kept)
