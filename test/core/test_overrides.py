"""Entries of overrides: each has its reason, says what is read, and may be like another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from generators.recipes import config_scopes as overrides
from hardware.errors import BrokenInput


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(overrides, "_FOLDER", tmp_path)
    overrides.all_overrides.cache_clear()
    yield tmp_path
    overrides.all_overrides.cache_clear()


BASE = """
[base]
reason = "r"
config = { heads = 2, layers = 3 }
inputs.x = { kind = "pixels", shape = [2] }
[near]
reason = "r"
like = "base"
config.layers = 4
[far]
reason = "r"
like = "near"
inputs.x = { omit = true }
"""


def test_what_an_entry_is_like_counts_and_its_own_words_come_last(folder: Path) -> None:
    (folder / "a.toml").write_text(BASE)
    assert overrides.overrides("near")["config"] == {"heads": 2, "layers": 4}
    assert overrides.overrides("far")["config"] == {"heads": 2, "layers": 4}
    assert overrides.overrides("far")["inputs"] == {"x": {"omit": True}}
    assert overrides.overrides("base")["inputs"] == {"x": {"kind": "pixels", "shape": [2]}}
    assert overrides.overrides("another") == {}


def test_an_entry_that_cannot_be_read_is_refused(folder: Path) -> None:
    for text, message in (
        ('[a]\nreason = "r"\nconfg = {}', "unknown keys: confg"),
        ("[a]\nconfig = {}", "no reason"),
        ('[a]\nreason = "r"\nlike = "b"\n[b]\nreason = "r"\nlike = "a"', "refers back to it"),
        ('[a]\nreason = "r"\nlike = "b"', "has no entry"),
        ('[a]\nreason = "r"\nnot_asked = ["backward"]\nleft_out = "l"', "a check that is required"),
        ('[a]\nreason = "r"\nnot_asked = ["padding"]', "without a reason"),
    ):
        (folder / "a.toml").write_text(text)
        with pytest.raises(BrokenInput, match=message):
            overrides.all_overrides()
    for name in ("a", "b"):
        (folder / f"{name}.toml").write_text('[t]\nreason = "r"')
    with pytest.raises(BrokenInput, match=r"b\.toml and another file"):
        overrides.all_overrides()


def test_an_entry_for_a_task_takes_the_place_of_the_types_own(folder: Path) -> None:
    (folder / "a.toml").write_text(BASE + '["base@fill-mask"]\nreason = "r"\nlike = "far"\nconfig.heads = 3')
    assert overrides.overrides("base", "fill-mask")["config"] == {"heads": 3, "layers": 4}
    assert overrides.overrides("base", "fill-mask")["inputs"] == {"x": {"omit": True}}
    assert overrides.overrides("base", "text-generation") == overrides.overrides("base")


def test_a_table_in_a_value_that_is_no_configuration_changes_it_in_place() -> None:
    config = SimpleNamespace(rope={"theta": 1.0, "kind": {"name": "default"}})
    given = {"rope": {"theta": 1.0, "kind": {"name": "default"}}}
    changed = overrides.overridden(given, {"rope": {"kind": {"name": "yarn"}}}, config)
    assert changed == {"rope": {"theta": 1.0, "kind": {"name": "yarn"}}}


def test_kinds_of_other_layers_than_those_of_an_entry_are_counted_anew() -> None:
    config = SimpleNamespace(num_hidden_layers=9, layer_types=["a"] * 9)
    given = {"num_hidden_layers": 2, "layer_types": ["a", "b"]}
    assert overrides.overridden(given, {"num_hidden_layers": 4}, config) == {"num_hidden_layers": 4}
    assert overrides.overridden(given, {"num_hidden_layers": 2}, config) == given
    changes = {"num_hidden_layers": 3, "layer_types": ["b", "b"]}
    assert overrides.overridden(given, changes, config) == changes


def test_an_entry_for_a_version_counts_with_that_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"one": {"reason": "r"}, "one@4.57": {"reason": "older"}, "one@task": {"reason": "task"}}
    monkeypatch.setattr(overrides, "all_overrides", lambda: entries)
    monkeypatch.setattr(overrides, "installed_version", lambda: "4.57.6")
    assert overrides.overrides("one")["reason"] == "older"
    assert overrides.overrides("one", "task")["reason"] == "task"
    monkeypatch.setattr(overrides, "installed_version", lambda: "5.5.4")
    assert overrides.overrides("one")["reason"] == "r"
