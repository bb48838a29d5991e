"""Which checks a suite gets: from the task and the target's abilities alone."""

from __future__ import annotations

import pytest

from hardware.backends.factory import backend_class, built_in_targets
from hardware.testing.checks import all_checks, applicable_checks, core_checks

EVERYTHING = frozenset({"generate", "backward", "save"})


def names(generates="none", has_mask=True, can=EVERYTHING, has_cache=True) -> list[str]:
    found = applicable_checks(generates=generates, has_mask=has_mask, has_cache=has_cache, can=can)
    return [check.name for check in found]


def test_a_model_that_decodes_gets_the_decoding_checks():
    decoding = {"generates_like_reference", "cache_matches"}
    assert decoding <= set(names("causal"))
    assert decoding <= set(names("seq2seq"))
    assert not decoding & set(names("none"))


def test_a_target_that_cannot_do_something_is_not_asked_to():
    assert "backward" not in names(can=frozenset({"save", "generate"}))
    assert "save_reload" not in names(can=frozenset({"backward"}))
    assert "cache_matches" not in names("causal", can=frozenset())


def test_the_mask_check_needs_a_mask():
    assert "honours_mask" in names(has_mask=True)
    assert "honours_mask" not in names(has_mask=False)


def test_a_model_that_decodes_without_a_cache_is_not_asked_for_one():
    assert set(names("causal")) - set(names("causal", has_cache=False)) == {"cache_matches"}


@pytest.mark.parametrize("generates", ["none", "causal", "seq2seq"])
@pytest.mark.parametrize("has_mask", [True, False])
def test_what_is_proven_of_every_model_on_every_target(generates, has_mask):
    for name in built_in_targets():
        found = names(generates, has_mask, backend_class(name).CAN)
        assert {"builds", "matches_reference", "matches_recorded", "runs_natively"} <= set(found), name


def test_core_checks_are_checks_and_need_no_ability():
    optional = {check.name for check in all_checks() if check.can}
    assert core_checks() == {c.name for c in all_checks() if c.core}
    assert core_checks()
    assert not core_checks() & optional


def test_each_check_has_a_template_and_no_template_is_left_over():
    from generators.suites.render import TEMPLATES

    templates = {path.name.removesuffix(".py.j2") for path in (TEMPLATES / "checks").iterdir()}
    assert templates == {check.name for check in all_checks()}
