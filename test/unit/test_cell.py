"""Cells: one id everywhere, a file name that is safe, and no room for anything else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.cell import PRECISIONS, Cell
from hardware.errors import UsageError
from hardware.target import Target

MODELS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._@+-]{0,30}\Z")
TASKS = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,20}\Z")
TARGETS = st.sampled_from(["cpu", "cuda", "openvino:NPU", "webgpu:native"]).map(Target.parse)
CELLS = st.builds(Cell, model=MODELS, task=TASKS, target=TARGETS, precision=st.sampled_from(PRECISIONS))


def cell(model: str = "bert", task: str = "fill-mask", target: str = "cpu", precision: str = "float32") -> Cell:
    return Cell(model=model, task=task, target=Target.parse(target), precision=precision)


@given(CELLS)
def test_the_id_parses_back_and_the_slug_is_a_safe_file_name(one):
    assert Cell.parse(one.id) == one
    assert re.fullmatch(r"[a-z0-9_]+", one.slug)


@given(MODELS, MODELS)
def test_models_that_differ_in_case_or_signs_only_do_not_share_a_file(first, second):
    same = first.replace("-", "_") == second.replace("-", "_")
    assert same or cell(model=first).slug != cell(model=second).slug


def test_an_index_selects_a_device_and_is_not_part_of_the_cell():
    assert cell(target="cuda:1").id == "bert/fill-mask/cuda/float32"
    assert cell(target="openvino:GPU.1").id == "bert/fill-mask/openvino:GPU/float32"


@pytest.mark.parametrize("model", ["", "a/b", "../x", "a b", "bert\n", "bert'", 'b"', "-bert", "x" * 121, "é", "b\0"])
def test_a_model_that_cannot_stand_in_an_id_is_refused(model):
    with pytest.raises(UsageError, match="cannot name a model"):
        cell(model=model)


@pytest.mark.parametrize("task", ["", "Fill", "fill mask", "fill/mask", "x\n", "../x"])
def test_a_task_that_cannot_stand_in_an_id_is_refused(task):
    with pytest.raises(UsageError, match="not the name of a task"):
        cell(task=task)


def test_an_unknown_precision_names_the_known_ones():
    with pytest.raises(UsageError, match=r"'float33' is not a precision.*bfloat16"):
        cell(precision="float33")


@pytest.mark.parametrize("text", ["bert", "bert/fill-mask/cpu", "a/b/c/d/e", "bert/fill-mask/CPU/float32", ""])
def test_text_that_is_no_cell_is_refused(text):
    with pytest.raises(UsageError):
        Cell.parse(text)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [("bert/*/cpu/*", True), ("*", True), ("*/openvino*/*", False), ("BERT/*", False), ("bert/fill-mask/cpu", False)],
)
def test_patterns_select_by_id(pattern, fits):
    assert cell().matches(pattern) is fits
