"""Models that are named on a command line and cannot be built, and all types at once."""

from __future__ import annotations

import pytest

from generators.chosen_models import choose_models, profiles_of
from hardware.errors import ModelError
from hwcompat.cli.earlier_scripts import generation_main


def test_a_named_type_that_cannot_be_built_leaves_the_others_and_is_reported(tmp_path, capsys):
    profiles, refused, unmet = profiles_of(choose_models(["bark", "bert"], read_list=list))
    assert [profile.cell_model for profile in profiles] == ["bert"]
    assert len(refused) == 1
    assert refused[0].startswith("bark: no_class: ")
    assert unmet == ("bark",)
    with pytest.raises(ModelError, match="no forward"):
        profiles_of(choose_models(["bark"], read_list=list))
    words = ["--model", "bark", "--model", "bert", "--device", "cpu", "--output-dir", str(tmp_path)]
    for _ in range(2):  # the second time nothing has changed
        assert generation_main(words) == 4
        out, err = capsys.readouterr()
        assert "test_bert_fill_mask_cpu_float32.py" in out
        assert "note: no suite for bark: no_class" in err
        assert "error: no suite for bark: " in err


def test_tasks_are_taken_one_by_one_and_an_unknown_one_names_the_known():
    profiles, refused, _ = profiles_of(choose_models(["bert"], read_list=list), ["fill-mask"])
    assert [profile.recipe.task for profile in profiles] == ["fill-mask"]
    assert refused == ()
    with pytest.raises(ModelError, match="fill-mask"):
        profiles_of(choose_models(["bert"], read_list=list), ["make-coffee"])


def test_all_tasks_of_every_type_need_no_derivation(monkeypatch):
    def derive(*_: object) -> None:
        raise AssertionError("nothing is derived where a recipe ships, or why there is none")

    monkeypatch.setattr("generators.recipes.on_demand._recipe", derive)
    monkeypatch.setattr("generators.chosen_models.derive_missing", derive)
    found, refused, unmet = profiles_of(choose_models([], priority="all", read_list=list), ["all"])
    assert len({one.recipe.model_type for one in found}) > 500
    assert len(found) > 1400
    assert len(refused) < 150
    assert unmet == ()
