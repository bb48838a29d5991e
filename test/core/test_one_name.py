"""In a checkout each module has two names, `hwcompat.hardware` and `hardware`, and is one object."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    *("hardware", "hardware.backends", "hardware.backends.cpu", "hardware.evidence.record", "hardware.testing"),
    *("generators", "generators.models.catalog", "reports", "reports.finding"),
)
SAME = """
import importlib, sys
for name in sys.argv[1:]:
    first, second = importlib.import_module(name), importlib.import_module(other(name))
    assert first is second, name
    assert first.__name__ == first.__spec__.name == f"hwcompat.{name.removeprefix('hwcompat.')}", first.__spec__
print(len(sys.argv) - 1)
"""
SHORT_FIRST = "def other(name): return f'hwcompat.{name}'"
FULL_FIRST = "def other(name): return name.removeprefix('hwcompat.')"


def python(words: Sequence[str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("code", [SHORT_FIRST, FULL_FIRST], ids=["short first", "full first"])
def test_a_module_is_the_same_object_under_both_names(code: str) -> None:
    prefix = "hwcompat." if code is FULL_FIRST else ""
    done = python(["-c", code + SAME, *(prefix + name for name in NAMES)])
    assert (done.stdout, done.returncode) == (f"{len(NAMES)}\n", 0), done.stderr


def test_what_is_imported_by_either_name_is_the_same() -> None:
    import hardware.testing
    from hardware.backends.factory import get_backend
    from hardware.cell import Cell
    from hwcompat.hardware import backends, cell
    from hwcompat.testing import ModelTest

    assert cell.Cell is Cell
    assert backends.factory.get_backend is get_backend
    assert hardware.testing.ModelTest is ModelTest
    one = Cell.parse("bert/fill-mask/cpu/float32")
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_patch_by_the_short_name_is_seen_by_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    import hwcompat.hardware.detection

    monkeypatch.setattr("hardware.detection.detect", 3)
    assert hwcompat.hardware.detection.detect == 3


def test_a_module_that_does_not_exist_is_reported_by_the_name_that_was_asked_for() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"'hardware\.nothing'"):
        __import__("hardware.nothing")


@pytest.mark.parametrize("name", ["hardware", "hardware.requirements", "generators.recipes"])
def test_modules_run_by_either_name(name: str) -> None:
    words = ["requirements.txt"] if name == "hardware.requirements" else ["--help"]
    short, full = (python(["-m", prefix + name, *words]) for prefix in ("", "hwcompat."))
    assert short.returncode == full.returncode == 0, short.stderr + full.stderr
    assert short.stdout == full.stdout


def test_a_folder_of_the_user_with_one_of_these_names_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "__init__.py").write_text("OWN = 3\n")
    code = f"import sys; sys.path.append({str(ROOT)!r}); import hwcompat.reports, reports; print(reports.OWN)"
    done = python(["-c", code], tmp_path)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr
