"""A user's templates are rendered in a child process, which has to leave the parent whole."""

from __future__ import annotations

import pytest
from golden_suites import recipe_of

from generators.suites.render import render
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
