"""Which models a command line speaks of."""

from __future__ import annotations

import pytest

from generators.chosen_models import choose_models, list_entries, profiles_of
from generators.models.priority import openvino_exporters, types_of_priority
from hardware.command_line import open_door
from hardware.errors import ModelError, NothingMatched, UsageError
from run_test_generation import main


def nothing() -> list[str]:
    return []


def test_names_come_in_their_order_and_once():
    chosen = choose_models(["gpt2", "bert", "gpt2"], read_list=nothing)
    assert chosen.names == ("gpt2", "bert")


def test_a_list_on_standard_input_takes_the_place_of_the_dash():
    lines = ["# text models\n", "\n", "  t5  # small\n", "bert\n"]
    chosen = choose_models(["gpt2", "-", "vit"], read_list=lambda: lines)
    assert chosen.names == ("gpt2", "t5", "bert", "vit")


def test_entries_of_a_list_with_comments_and_blank_lines():
    assert list_entries(["a\n", "#b\n", "\n", " c #d\n"]) == ["a", "c"]


@pytest.mark.parametrize(("models", "what"), [([], "no model was named"), (["-"], "standard input")])
def test_nothing_named_is_a_usage_error(models, what):
    with pytest.raises(UsageError, match=what):
        choose_models(models, read_list=nothing)


def test_architectures_and_traits_narrow_what_was_named():
    chosen = choose_models(
        ["bert", "mixtral", "vit", "mamba"], architectures=["state-space", "vision"], read_list=nothing
    )
    assert chosen.names == ("vit", "mamba")


def test_an_architecture_alone_takes_every_type_of_it():
    names = choose_models([], architectures=["state-space"], read_list=nothing).names
    assert {"mamba", "falcon_mamba"} <= set(names)
    assert "bert" not in names


def test_an_unknown_architecture_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="Did you mean 'vision'"):
        choose_models(["bert"], architectures=["vison"], read_list=nothing)


def test_a_selection_without_a_model_is_an_error():
    with pytest.raises(NothingMatched):
        choose_models(["bert"], architectures=["speech"], read_list=nothing)


def test_priorities_part_all_types_that_have_a_class():
    high, medium, low = (types_of_priority(name) for name in ("high", "medium", "low"))
    assert {"bert", "llama", "whisper", "mamba", "patchtst"} <= set(high)
    assert not set(high) & set(medium)
    assert not set(medium) & set(low)
    assert not set(high) & set(low)
    assert set(types_of_priority("all")) == {*high, *medium, *low}
    exporters = openvino_exporters()
    assert exporters is not None
    assert set(medium) <= exporters
    assert not set(low) & exporters


def test_a_priority_adds_to_the_names():
    chosen = choose_models(["xlm"], priority="high", read_list=nothing)
    assert chosen.names[0] == "xlm"
    assert "bert" in chosen.names
    assert chosen.by_name == {"xlm"}


def test_a_named_model_that_is_unknown_is_an_error():
    with pytest.raises(ModelError):
        profiles_of(choose_models(["bert", "no-such-model-anywhere"], read_list=nothing))


def test_a_named_type_that_cannot_be_built_leaves_the_others_and_is_told():
    profiles, refused, unmet = profiles_of(choose_models(["bark", "bert"], read_list=nothing))
    assert [profile.cell_model for profile in profiles] == ["bert"]
    assert len(refused) == 1
    assert refused[0].startswith("bark: no_class: ")
    assert unmet == ("bark",)
    with pytest.raises(ModelError, match="no forward"):
        profiles_of(choose_models(["bark"], read_list=nothing))


def test_a_command_that_does_less_than_was_asked_for_does_not_end_with_0(tmp_path, capsys):
    words = ["--model", "bark", "--model", "bert", "--device", "cpu", "--output-dir", str(tmp_path)]
    for _ in range(2):  # nor the second time, when nothing has changed
        assert open_door(main, words, program="run_test_generation.py") == 4
        out, err = capsys.readouterr()
        assert "test_bert_fill_mask_cpu_float32.py" in out
        assert "note: no suite for bark: no_class" in err
        assert "error: no suite for bark: " in err


def test_tasks_are_taken_one_by_one_and_an_unknown_one_names_the_known():
    profiles, refused, _ = profiles_of(choose_models(["bert"], read_list=nothing), ["fill-mask"])
    assert [profile.recipe.task for profile in profiles] == ["fill-mask"]
    assert refused == ()
    with pytest.raises(ModelError, match="fill-mask"):
        profiles_of(choose_models(["bert"], read_list=nothing), ["make-coffee"])


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
