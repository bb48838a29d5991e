"""Golden suites: the rendered text, byte for byte, is what lies in `suites/` (`--update-golden` writes it anew)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from generators.models.recipe import read_recipe
from generators.models.recipe_store import SHIPPED
from generators.suites.render import render
from generators.suites.suite_files import prepare_folder
from hardware.backends.factory import backend_class
from hardware.cell import Cell
from hardware.target import Target
from hardware.testing.checks import applicable_checks
from hardware.testing.suite_file import read_suite

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "suites"
VERSION = "5.5.4"
MODEL_TYPES = ("bert", "gpt2", "t5", "vit", "clip", "whisper", "mixtral", "mamba")
TARGETS = ("cpu", "openvino", "simulated", "cuda")
GOLDEN = dict.fromkeys(MODEL_TYPES, TARGETS) | dict.fromkeys(
    ("llava", "wav2vec2", "patchtst", "resnet"), ("cpu", "openvino")
)
"""Targets by model type: what a suite's text depends on beside its target is shown by two of them."""
RULES = ("golden.first", "golden.second")
"""Not those of today's rules: what is recorded here changes with templates and recipes only."""


def every_suite() -> dict[str, str]:
    """The text of each golden suite by its file's name."""
    suites = {}
    for model_type, targets in GOLDEN.items():
        recipe = read_recipe(SHIPPED / VERSION / f"{model_type}.json")
        for target in targets:
            cell = Cell(model=model_type, task=recipe.task, target=Target.parse(target))
            suites[f"test_{cell.slug}.py"] = render(recipe, cell, RULES)
    return suites


@pytest.fixture(scope="module")
def suites() -> dict[str, str]:
    return every_suite()


def test_rendering_gives_the_recorded_bytes(suites: dict[str, str], update_golden: bool) -> None:
    assert len(suites) == sum(map(len, GOLDEN.values()))
    if update_golden:
        FOLDER.mkdir(exist_ok=True)
        for left in {path.name for path in FOLDER.glob("*.py")} - set(suites):
            (FOLDER / left).unlink()
        for name, text in suites.items():
            (FOLDER / name).write_bytes(text.encode())
    recorded = {path.name: path.read_bytes().decode() for path in FOLDER.glob("*.py")}
    different = [name for name in suites if recorded.get(name) != suites[name]]
    assert set(recorded) == set(suites), "run pytest test/recorded --update-golden and look at the difference"
    assert not different, "run pytest test/recorded --update-golden and look at the difference"


@pytest.mark.parametrize(
    "command", [["format", "--check", "--isolated"], ["check", "--isolated", "--no-cache", "--select", "E,F,I,B"]]
)
def test_golden_suites_are_formatted_and_clean(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_process_on_another_machine_renders_the_same_bytes(suites: dict[str, str], tmp_path: Path) -> None:
    code = f"""
        import hashlib, sys
        sys.path[:0] = [{str(ROOT)!r}, {str(FOLDER.parent)!r}]
        from test_golden_suites import every_suite
        text = "".join(name + body for name, body in every_suite().items())
        print(hashlib.sha256(text.encode()).hexdigest())
    """
    (tmp_path / "home").mkdir()
    changed = {"HOME": str(tmp_path / "home"), "TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "C", "USER": "somebody"}
    said = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env=os.environ | changed | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "4242")
    }
    here = "".join(name + body for name, body in suites.items())
    assert said == {hashlib.sha256(here.encode()).hexdigest()}


def test_no_golden_suite_knows_where_it_was_made(suites: dict[str, str]) -> None:
    for text in suites.values():
        assert str(ROOT) not in text
        assert str(Path.home()) not in text


def test_every_golden_suite_compiles_and_tells_its_plan(suites: dict[str, str]) -> None:
    for name, text in suites.items():
        compile(text, name, "exec")
        suite = read_suite(FOLDER / name)
        assert suite is not None
        assert name == f"test_{suite.cell.slug}.py"
        assert set(suite.checks) >= {"builds", "matches_reference", "matches_recorded", "runs_natively"}


def test_every_golden_suite_is_collected_with_the_checks_of_its_task_and_target(
    suites: dict[str, str], tmp_path: Path
) -> None:
    for name, text in suites.items():
        (tmp_path / name).write_text(text)
    prepare_folder(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    collected = {tuple(line.split("::test_")) for line in done.stdout.splitlines() if "::test_" in line}
    wanted = set()
    for model_type, targets in GOLDEN.items():
        recipe = read_recipe(SHIPPED / VERSION / f"{model_type}.json")
        for target in targets:
            slug = Cell(model=model_type, task=recipe.task, target=Target.parse(target)).slug
            checks = applicable_checks(
                generates=recipe.generate,
                has_mask=recipe.mask_input is not None,
                has_cache=not recipe.without_cache,
                can=backend_class(target).CAN,
            )
            wanted |= {(f"test_{slug}.py", check.name) for check in checks}
    assert collected == wanted
