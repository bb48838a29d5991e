"""Names of models from anywhere: told what they are without importing, opening or asking anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile
from readers import check_terminal
from watched import Opened, Sentinel, Surroundings, invoked, limited, refused_or

from generators.chosen_models import choose_models, list_entries
from generators.model_profile import checkpoint_slug
from generators.models.basic_classification import classify_or_guess
from generators.models.classifier import classify, classify_model, kind_of
from hardware.cell import Cell
from hardware.cell_selection import Shard, choose_cells
from hardware.target import Target

BASES = ("bert", "google-bert/bert-base-uncased", "./my-checkpoint", "my.module:factory", "model.onnx", "CON", "a/b")


def name(hostile: Hostile) -> str:
    """A hostile name, or a name that is nearly one."""
    if hostile.random() < 0.4:
        return hostile.name()
    base = hostile.choice(BASES)
    place = hostile.randrange(len(base) + 1)
    return f"{base[:place]}{hostile.name()}{base[place:]}"


@pytest.mark.fuzz(200)
def test_a_name_is_classified_or_refused(
    fuzz: Any, place: Path, sentinel: Sentinel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "my").mkdir()
    (place / "my" / "module.py").write_text(f"open({str(sentinel.path)!r}, 'w')")
    (place / "model.onnx").write_bytes(b"x")
    around = Surroundings(place.parent)
    before = set(sys.modules)

    for hostile in fuzz:
        asked = name(hostile)
        with Opened(place) as opened:
            found = refused_or(classify, asked)
            refused_or(kind_of, asked)
            refused_or(classify_model, asked, model_class=asked, tasks=[asked])
            refused_or(choose_models, [asked], read_list=[asked].copy)
            slug = refused_or(checkpoint_slug, asked)
            classify_or_guess(asked)
        assert not opened.names
        if found is not None:
            assert found.model_type
        if slug is not None:
            cell = Cell(model=slug, task="fill-mask", target=Target(name="cpu"))
            assert set(cell.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    around.check()
    assert not {one for one in set(sys.modules) - before if one.startswith(("my", "model"))}


@pytest.mark.fuzz(150)
def test_cells_targets_and_patterns_are_taken_apart_or_refused(fuzz: Any) -> None:
    cells = ("bert/fill-mask/cpu/float32", "gpt2/text-generation/openvino:NPU/float16")

    for hostile in fuzz:
        text = hostile.choice(
            (hostile.text(), "/".join(hostile.text() for _ in range(4)), f"bert/fill-mask/{name(hostile)}/x")
        )
        cell = refused_or(Cell.parse, text)
        assert cell is None or cell.id == text
        target = refused_or(Target.parse, text)
        assert target is None or str(target) == text
        refused_or(Shard.parse, text)
        limited(choose_cells, cells, select=[text], skip=[hostile.text()]) if hostile.random() < 0.1 else None
        refused_or(choose_cells, cells, select=[text])
        assert all(entry.strip() for entry in list_entries(text.splitlines()))


@pytest.mark.fuzz(25)
def test_the_door_says_what_is_wrong_in_one_line(fuzz: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    around = Surroundings(place.parent, place)

    for hostile in fuzz:
        words = hostile.choice((
            ["generate", "--model", name(hostile), "--device", "cpu", "--list"],
            ["generate", "--model", "bert", "--device", hostile.text(), "--list"],
            ["generate", "--model", "bert", "--task", hostile.text(), "--list"],
            ["generate", "--model", "bert", "--device", "cpu", "--select", hostile.text(), "--list"],
            ["generate", "--model", "bert", "--device", "cpu", "--shard", hostile.text(), "--list"],
            ["explain", hostile.text()],
            ["backlog", hostile.text()],
            ["generate", "--architectures", hostile.text(), "--list"],
            [hostile.text()],
        ))  # fmt: skip
        if "\0" in " ".join(words):
            continue
        _, out, _ = invoked(*words)
        check_terminal(out)
    around.check()
