"""Patterns and shards: what is kept, and an error wherever nothing would be."""

from __future__ import annotations

import pytest

from hardware.cell_selection import Shard, choose_cells
from hardware.errors import NothingMatched, UsageError

CELLS = [
    f"{model}/{task}/{target}/float32"
    for model, task in (("bert", "fill-mask"), ("gpt2", "text-generation"), ("vit", "image-classification"))
    for target in ("cpu", "openvino")
]
MANY = [f"model-{number}/fill-mask/cpu/float32" for number in range(500)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_cell_is_in_exactly_one_shard(count):
    shares = [[c for c in MANY if Shard(index=i, count=count).holds(c)] for i in range(1, count + 1)]
    assert sorted(cell for share in shares for cell in share) == sorted(MANY)
    assert min(len(share) for share in shares) > len(MANY) / count / 2


def test_a_cells_shard_does_not_depend_on_what_else_is_planned():
    shard = Shard(index=2, count=3)
    chosen = choose_cells(MANY, shard=shard)
    fewer = [cell for cell in reversed(MANY) if "7" in cell]
    assert set(choose_cells(fewer, shard=shard)) == set(chosen) & set(fewer)


def test_shards_are_the_same_on_every_machine():
    held = [number for number, cell in enumerate(CELLS) if Shard.parse("1/2").holds(cell)]
    assert held == [0, 3, 4, 5]  # a hash of Python's own would give others in every process


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1/0", "a/b", "1", "1/2/3", "-1/3", "1.5/3", "1/99999999"])
def test_what_is_no_shard_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match="i/n, with i from 1 to n"):
        Shard.parse(text)


def test_an_empty_shard_is_an_error_and_no_silent_success():
    empty = next(s for s in (Shard(index=i, count=50) for i in range(1, 51)) if not any(map(s.holds, CELLS)))
    with pytest.raises(NothingMatched, match=f"shard {empty} holds none of {len(CELLS)} cell"):
        choose_cells(CELLS, shard=empty)


def test_select_and_skip_keep_the_order():
    assert choose_cells(CELLS, select=["gpt2/*", "bert/*"], skip=["*/openvino/*"]) == (CELLS[0], CELLS[2])


@pytest.mark.parametrize(
    ("select", "skip", "words"),
    [
        (["brt/*"], [], "'brt/\\*' fits none.*Did you mean 'bert'"),
        (["bert/*", "vti/*"], [], "'vti/\\*' fits none.*Did you mean 'vit'"),
        (["bert"], [], "Did you mean 'bert/\\*'"),
        (["openvino"], [], "Did you mean '\\*/openvino/\\*'"),
        ([], ["*/cuda/*"], "--skip '\\*/cuda/\\*' fits none of 6"),
        (["nothing-like-it"], [], "The cells are: bert/fill-mask/cpu/float32"),
    ],
)
def test_a_pattern_that_fits_nothing_is_named_with_what_is_near(select, skip, words):
    with pytest.raises(NothingMatched, match=words) as caught:
        choose_cells(CELLS, select=select, skip=skip)
    assert caught.value.exit_code == 5


def test_patterns_that_leave_nothing_together_are_an_error():
    with pytest.raises(NothingMatched, match="nothing is left of 6"):
        choose_cells(CELLS, select=["bert/*"], skip=["bert/*"])


def test_of_many_cells_six_are_named_and_the_rest_counted():
    cells = [f"bert/fill-mask/cpu/{number}" for number in range(9)]
    with pytest.raises(NothingMatched) as caught:
        choose_cells(cells, select=["zzz"], skip=[])
    said = caught.value.fix
    assert said.count("bert/fill-mask") == 6
    assert said.endswith(" and 3 more.")
