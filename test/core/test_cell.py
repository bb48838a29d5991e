"""Targets and cells: one id everywhere, a file name that is safe, and patterns and shards that select cells."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.cell import PRECISIONS, Cell
from hardware.cell_selection import Shard, choose_cells
from hardware.errors import NothingMatched, UsageError
from hardware.target import Target

MODELS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._@+-]{0,30}\Z")
TASKS = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,20}\Z")
TARGETS = st.sampled_from(["cpu", "cuda", "openvino:NPU", "webgpu:native"]).map(Target.parse)
ANY_CELL = st.builds(Cell, model=MODELS, task=TASKS, target=TARGETS, precision=st.sampled_from(PRECISIONS))
CELLS = [
    f"{model}/{task}/{target}/float32"
    for model, task in (("bert", "fill-mask"), ("gpt2", "text-generation"), ("vit", "image-classification"))
    for target in ("cpu", "openvino")
]
MANY = [f"model-{number}/fill-mask/cpu/float32" for number in range(500)]


def cell(model: str = "bert", task: str = "fill-mask", target: str = "cpu", precision: str = "float32") -> Cell:
    return Cell(model=model, task=task, target=Target.parse(target), precision=precision)


def test_a_target_prints_what_it_was_parsed_from():
    wanted = {
        "cpu": Target(name="cpu"),
        "cuda:1": Target(name="cuda", index=1),
        "openvino:NPU": Target(name="openvino", variant="NPU"),
        "openvino:GPU.1": Target(name="openvino", variant="GPU", index=1),
        "webgpu:native": Target(name="webgpu", variant="native"),
        "cuda:0": Target(name="cuda", index=0),
    }
    assert {text: Target.parse(text) for text in wanted} == wanted
    assert [str(one) for one in wanted.values()] == list(wanted)
    assert str(Target.parse("openvino:GPU.1").kind) == "openvino:GPU"
    assert Target.parse("cuda:1").kind == Target.parse("cuda:0").kind == Target.parse("cuda")


def test_text_that_is_no_target_is_refused_with_examples():
    wrong = (
        "",
        " cpu",
        "cpu ",
        "cpu\n",
        "CPU",
        "cuda:",
        "cuda:-1",
        "cuda:1:2",
        "../cpu",
        "cuda:99999",
        "a" * 40,
        "é",
    )
    for text in wrong:
        with pytest.raises(UsageError, match=r"is not a target.*openvino:NPU"):
            Target.parse(text)


@settings(max_examples=50)
@given(st.text(max_size=20))
def test_any_text_parses_and_prints_back_the_same_target_or_is_refused(text):
    with contextlib.suppress(UsageError):
        target = Target.parse(text)
        assert Target.parse(str(target)) == target


@settings(max_examples=30)
@given(ANY_CELL)
def test_the_id_parses_back_and_the_slug_is_a_safe_file_name(one):
    assert Cell.parse(one.id) == one
    assert re.fullmatch(r"[a-z0-9_]+", one.slug)


@settings(max_examples=30)
@given(MODELS, MODELS)
def test_models_that_differ_in_case_or_signs_only_do_not_share_a_file(first, second):
    for one, other in ((first, second), (first, first.swapcase()), (first, first.replace("-", "."))):
        same = one.replace("-", "_") == other.replace("-", "_")
        assert same or cell(model=one).slug != cell(model=other).slug


def test_the_index_of_a_device_is_not_part_of_the_cell():
    assert cell(target="cuda:1").id == "bert/fill-mask/cuda/float32"
    assert cell(target="openvino:GPU.1").id == "bert/fill-mask/openvino:GPU/float32"


def test_what_cannot_be_part_of_an_id_is_refused():
    for model in ("", "a/b", "../x", "a b", "bert\n", "bert'", 'b"', "-bert", "x" * 121, "é", "b\0"):
        with pytest.raises(UsageError, match="is not a valid model name"):
            cell(model=model)
    for task in ("", "Fill", "fill mask", "fill/mask", "x\n", "../x"):
        with pytest.raises(UsageError, match="not the name of a task"):
            cell(task=task)
    with pytest.raises(UsageError, match=r"'float33' is not a precision.*bfloat16"):
        cell(precision="float33")
    for text in ("bert", "bert/fill-mask/cpu", "a/b/c/d/e", "bert/fill-mask/CPU/float32", ""):
        with pytest.raises(UsageError):
            Cell.parse(text)


def test_patterns_select_by_id():
    wanted = {"bert/*/cpu/*": True, "*": True, "*/openvino*/*": False, "BERT/*": False, "bert/fill-mask/cpu": False}
    assert {pattern: cell().matches(pattern) for pattern in wanted} == wanted
    assert choose_cells(CELLS, select=["gpt2/*", "bert/*"], skip=["*/openvino/*"]) == (CELLS[0], CELLS[2])


def test_a_pattern_that_matches_nothing_is_named_with_similar_ones():
    for select, skip, words in (
        (["brt/*"], [], "'brt/\\*' matches no cells.*Did you mean 'bert'"),
        (["bert/*", "vti/*"], [], "'vti/\\*' matches no cells.*Did you mean 'vit'"),
        (["bert"], [], "Did you mean 'bert/\\*'"),
        (["openvino"], [], "Did you mean '\\*/openvino/\\*'"),
        ([], ["*/cuda/*"], "--skip '\\*/cuda/\\*' matches no cells"),
        (["nothing-like-it"], [], "The cells are: bert/fill-mask/cpu/float32"),
        (["bert/*"], ["bert/*"], "none of 6 cell"),
    ):
        with pytest.raises(NothingMatched, match=words) as caught:
            choose_cells(CELLS, select=select, skip=skip)
        assert caught.value.exit_code == 5
    with pytest.raises(NothingMatched) as caught:
        choose_cells([f"bert/fill-mask/cpu/{number}" for number in range(9)], select=["zzz"], skip=[])
    assert caught.value.fix.count("bert/fill-mask") == 6
    assert caught.value.fix.endswith(" and 3 more.")


def test_every_cell_is_in_one_shard_whatever_else_is_planned():
    for count in (1, 2, 3, 7):
        shares = [[c for c in MANY if Shard(index=i, count=count).holds(c)] for i in range(1, count + 1)]
        assert sorted(cell for share in shares for cell in share) == sorted(MANY)
        assert min(len(share) for share in shares) > len(MANY) / count / 2
    shard = Shard(index=2, count=3)
    fewer = [cell for cell in reversed(MANY) if "7" in cell]
    assert set(choose_cells(fewer, shard=shard)) == set(choose_cells(MANY, shard=shard)) & set(fewer)
    held = [number for number, cell in enumerate(CELLS) if Shard.parse("1/2").holds(cell)]
    assert held == [0, 3, 4, 5]  # a hash of Python's own would give others in every process


def test_an_empty_or_malformed_shard_is_an_error():
    empty = next(s for s in (Shard(index=i, count=50) for i in range(1, 51)) if not any(map(s.holds, CELLS)))
    with pytest.raises(NothingMatched, match=f"shard {empty} has none of {len(CELLS)} cell"):
        choose_cells(CELLS, shard=empty)
    for text in ("", "0/3", "4/3", "1/0", "a/b", "1", "1/2/3", "-1/3", "1.5/3", "1/99999999"):
        with pytest.raises(UsageError, match="i/n, with i from 1 to n"):
            Shard.parse(text)
