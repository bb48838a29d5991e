"""Golden suites: the text of some and the bytes of all are recorded (`--update-golden` writes them), and all run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from golden_suites import FOLDER, HASHES, every_cell, every_suite, hashes_of, recipe_of, texts_kept

from generators.suites.suite_files import prepare_folder
from hardware.backends.factory import backend_class
from hardware.testing.checks import applicable_checks
from hardware.testing.suite_file import read_suite

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suites() -> dict[str, str]:
    return every_suite()


@pytest.fixture(scope="module")
def folder(suites: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    for name, text in suites.items():
        (folder / name).write_bytes(text.encode())
    return folder


def python(*words: str, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_rendering_gives_the_recorded_bytes(suites: dict[str, str], update_golden: bool) -> None:
    kept = texts_kept(suites)
    if update_golden:
        HASHES.write_text(hashes_of(suites))
        for left in FOLDER.glob("*.py"):
            left.unlink()
        for name, text in kept.items():
            (FOLDER / name).write_bytes(text.encode())
    recorded = {path.name: path.read_bytes().decode() for path in FOLDER.glob("*.py")}
    assert set(recorded) == set(kept), "run pytest test/recorded --update-golden and look at the difference"
    assert [name for name in kept if recorded[name] != kept[name]] == [], "pytest test/recorded --update-golden"
    assert HASHES.read_text() == hashes_of(suites)


def test_golden_suites_are_formatted_and_clean(folder: Path) -> None:
    python("-m", "ruff", "format", "--check", "--isolated", "--no-cache", str(folder), cwd=ROOT)
    python(
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--no-cache",
        "--line-length=110",
        "--select=E,F,I,B",
        str(folder),
        cwd=ROOT,
    )


def test_another_process_on_another_machine_renders_the_same_bytes(suites: dict[str, str], tmp_path: Path) -> None:
    code = f"""
        import hashlib, sys
        sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "test/support")!r}]
        from golden_suites import every_suite
        text = "".join(name + body for name, body in every_suite().items())
        print(hashlib.sha256(text.encode()).hexdigest())
    """
    (tmp_path / "home").mkdir()
    changed = {"HOME": str(tmp_path / "home"), "TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "C", "USER": "somebody"}
    there = python("-c", textwrap.dedent(code), cwd=tmp_path, PYTHONHASHSEED="4242", **changed).strip()
    assert there == hashlib.sha256("".join(name + body for name, body in suites.items()).encode()).hexdigest()


def test_every_golden_suite_names_its_cell_and_has_the_checks_of_its_task_and_target(folder: Path) -> None:
    wanted = set()
    for cell in every_cell():
        suite, recipe = read_suite(folder / f"test_{cell.slug}.py"), recipe_of(cell.model)
        assert suite is not None
        assert suite.cell == cell
        checks = applicable_checks(
            generates=recipe.generate,
            has_mask=recipe.mask_input is not None,
            has_cache=not recipe.without_cache,
            can=backend_class(cell.target.name).CAN,
            in_recipe=recipe.calls_in(cell.precision),
            precision=cell.precision,
        )
        assert set(suite.checks) == {check.name for check in checks}
        wanted |= {(f"test_{cell.slug}.py", check.name) for check in checks}
    prepare_folder(folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    collecting = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(folder))
    collected = python(*collecting, cwd=folder, PYTHONPATH=str(ROOT)).splitlines()
    assert {tuple(line.split("::test_")) for line in collected if "::test_" in line} == wanted
