"""Which models a command line names."""

from __future__ import annotations

import pytest

from generators.chosen_models import choose_models, profiles_of
from generators.models.priority import openvino_exporters, types_of_priority
from hardware.errors import ModelError, NothingMatched, UsageError


def nothing() -> list[str]:
    return []


def test_names_keep_their_order_and_a_list_on_standard_input_replaces_the_dash():
    assert choose_models(["gpt2", "bert", "gpt2"], read_list=nothing).names == ("gpt2", "bert")
    lines = ["# text models\n", "\n", "  t5  # small\n", "bert\n"]
    chosen = choose_models(["gpt2", "-", "vit"], read_list=lambda: lines)
    assert chosen.names == ("gpt2", "t5", "bert", "vit")
    for models, what in (([], "no model was named"), (["-"], "standard input")):
        with pytest.raises(UsageError, match=what):
            choose_models(models, read_list=nothing)


def test_architectures_and_traits_narrow_what_was_named():
    chosen = choose_models(
        ["bert", "mixtral", "vit", "mamba"], architectures=["state-space", "vision"], read_list=nothing
    )
    assert chosen.names == ("vit", "mamba")
    names = choose_models([], architectures=["state-space"], read_list=nothing).names
    assert {"mamba", "falcon_mamba"} <= set(names)
    assert "bert" not in names
    with pytest.raises(UsageError, match="Did you mean 'vision'"):
        choose_models(["bert"], architectures=["vison"], read_list=nothing)
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
