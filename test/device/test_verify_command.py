"""`--verify` on real suites: good ones pass, each way in which a file fails to test anything is named, and of a
selection nothing else is written than what is good.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine, Ran

from generators.suites.render import TEMPLATES

pytestmark = pytest.mark.slow

VIT = "test_vit_image_classification_cpu_float32.py"
CUDA = "test_vit_image_classification_cuda_float32.py"
GPT2 = "test_gpt2_text_generation_cpu_float32.py"


@pytest.fixture(scope="module")
def suites(command_line: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    models = ("--model", "vit", "--model", "gpt2", "--device", "cpu", "--device", "cuda")
    ran = command_line.run(folder, *models)
    assert ran.code == 0, ran.err
    return ran.suites


def _row(ran: Ran, name: str) -> list[str]:
    (row,) = (line for line in ran.out.splitlines() if line.startswith(f"{name} "))
    return row.split()[1:]


def _said(ran: Ran, name: str) -> str:
    (said,) = (line for line in ran.out.splitlines() if line.startswith(f"{name}: "))
    return said


def test_good_suites_do_all_four(suites: Path, command_line: CommandLine, tmp_path: Path) -> None:
    ran = command_line.run(tmp_path, "--verify", suites, "--skip", "gpt2/*/cuda/*")
    assert ran.code == 0, ran.out + ran.err
    for name in (VIT, CUDA, GPT2):
        *steps, mutant, check = _row(ran, name)
        assert steps == ["yes"] * 3
        assert mutant.endswith("@0:")
        assert check.startswith(("matches_", "generates_", "honours_", "cache_"))
    assert "3 suite(s): 3 compile, 3 are collected, 3 pass on CPU, 3 fail when broken; 0 skipped" in ran.out
    assert "1 are for other targets: the CPU verifies their numbers, not their placement" in ran.out
    assert "[3/3] " in ran.err
    assert not (ran.folder / "evidence").exists()


@pytest.mark.extended
def test_what_a_file_does_not_do_is_named(suites: Path, command_line: CommandLine, tmp_path: Path) -> None:
    text = (suites / VIT).read_text(encoding="utf-8")
    edited = {
        "test_blind.py": text.replace("<= case.tolerance", "< float('inf')"),
        "test_missing.py": text.replace("import pytest\n", "import pytest\nimport no_such_module\n"),
        "test_syntax.py": text.replace("CONFIG = {", "CONFIG = {{"),
        "test_wrong.py": text.replace("PARAMETERS = ", "PARAMETERS = 1 + "),
    }
    folder = tmp_path / "edited"
    folder.mkdir()
    for name, changed in edited.items():
        assert changed != text
        (folder / name).write_text(changed, encoding="utf-8")
    ran = command_line.run(tmp_path, "--verify", folder)
    assert ran.code == 1
    assert _row(ran, "test_blind.py")[:3] == ["yes", "yes", "yes"]
    assert _row(ran, "test_blind.py")[-1] == "NO"
    assert "it can't fail: every check passed, although the model was broken by" in _said(ran, "test_blind.py")
    assert _row(ran, "test_missing.py") == ["yes", "NO", "-", "-"]
    assert "no_such_module" in _said(ran, "test_missing.py")
    assert _row(ran, "test_syntax.py") == ["NO", "-", "-", "-"]
    assert _row(ran, "test_wrong.py") == ["yes", "yes", "NO", "-"]
    assert "builds" in _said(ran, "test_wrong.py")
    assert "4 suite(s): 3 compile, 2 are collected, 1 pass on CPU, 0 fail when broken; 0 skipped" in ran.out


def test_of_a_selection_only_what_proved_itself_is_published(command_line: CommandLine, tmp_path: Path) -> None:
    """With templates of one's own, vit's suite tolerates anything."""
    templates = tmp_path / "templates"
    (templates / "checks").mkdir(parents=True)
    limit = '{{ ("1e9" if recipe.model_type == "vit" else "case.tolerance") | code }}'
    for path in (TEMPLATES / "checks").glob("*.j2"):
        text = path.read_text(encoding="utf-8")
        (templates / "checks" / path.name).write_text(text.replace("case.tolerance", limit), encoding="utf-8")
    models = ("--model", "vit", "--model", "resnet", "--device", "cpu")
    good = "test_resnet_image_classification_cpu_float32.py"
    before = command_line.run(tmp_path, *models)
    assert {path.name for path in before.suites.glob("test_*.py")} == {VIT, good}

    ran = command_line.run(tmp_path, *models, "--template-dir", templates, "--verify")

    assert ran.code == 1, ran.err
    assert [path.name for path in ran.suites.glob("test_*.py")] == [good]
    assert _row(ran, good)[:3] == ["yes"] * 3
    assert _row(ran, VIT)[-1] == "NO"
    assert "it can't fail: every check passed, although the model was broken by" in _said(ran, VIT)
    assert f"1 published in {ran.suites}" in ran.out
    assert f"1 not published: {VIT}" in ran.out
    assert f"removed, because it no longer passes verification: {VIT}" in ran.out
