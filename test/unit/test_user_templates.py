"""A user's templates are rendered in a child process, which has to leave the parent whole."""

from __future__ import annotations

import pytest
from front_doors import invoke
from golden_suites import recipe_of

from generators.suites.render import TEMPLATES, render
from hardware.cell import Cell
from hardware.errors import UsageError
from hardware.testing.suite_file import is_edited

CELL = Cell.parse("bert/fill-mask/cpu/float32")


def test_a_users_template_comes_before_ours_and_an_error_in_it_names_it(tmp_path):
    (tmp_path / "encoder-only.py.j2").write_text("MINE = {{ cell.id | literal }}\n")
    recipe = recipe_of("bert")
    text = render(recipe, CELL, [], template_folder=tmp_path)
    assert text.startswith('MINE = "bert/fill-mask/cpu/float32"\n')
    assert not is_edited(text)
    for template in ("{{ cell.id }}", "{{ nothing | literal }}", "{% if %}", "{{ cell | literal }}"):
        (tmp_path / "encoder-only.py.j2").write_text(template)
        with pytest.raises(UsageError, match="encoder-only"):
            render(recipe, CELL, [], template_folder=tmp_path)


def test_kept_suites_are_compared_with_and_updated_to_a_users_templates(tmp_path):
    suites, own = tmp_path / "suites", tmp_path / "templates"
    own.mkdir()
    (own / "suite.py.j2").write_text((TEMPLATES / "suite.py.j2").read_text(encoding="utf-8") + "\n# a house rule\n")
    assert invoke("generate", "--model", "bert", "--device", "cpu", "--output-dir", suites).code == 0
    (suite,) = suites.glob("test_*.py")
    before = suite.read_text(encoding="utf-8")
    done = invoke("check", suites, "--template-dir", own)
    assert (done.code, done.out.split()) == (1, ["changed", suite.name])
    assert suite.read_text(encoding="utf-8") == before
    assert invoke("update", suites, "--template-dir", own).code == 0
    assert "# a house rule" in suite.read_text(encoding="utf-8")
