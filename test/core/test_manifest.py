"""The same request again: nothing is generated, and nothing counts as unchanged that isn't."""

from __future__ import annotations

import os

import pytest

from generators.suites.manifest import generation_key, remember, what_is_there

ASKED = {"request": [["bert"], ["cpu"]]}
MACHINE = {"host": {"system": "Linux"}, "memory": {"total_bytes": 8, "available_bytes": 3}}


@pytest.mark.parametrize("change", ["none", "key", "edited", "deleted", "manifest"])
def test_what_was_written_is_found_again_unless_anything_differs(tmp_path, monkeypatch, change):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))
    suite = tmp_path / "test_a.py"
    suite.write_text("a = 1\n")
    remember(tmp_path, "key", {"test_a.py": "(high, predicted)"}, ["no suite for b"])
    if change == "edited":
        suite.write_text("a = 2\n")
    elif change == "deleted":
        suite.unlink()
    elif change == "manifest":
        next((tmp_path / "cache" / "generated").iterdir()).write_text("{broken")
    found = what_is_there(tmp_path, "other" if change == "key" else "key")
    assert found == (({"test_a.py": "(high, predicted)"}, ["no suite for b"]) if change == "none" else None)


def test_the_key_follows_request_machine_recipes_and_templates_but_not_free_memory(tmp_path):
    recipes, templates = tmp_path / "recipes", tmp_path / "templates"
    for folder, name in ((recipes, "bert.json"), (templates, "suite.py.j2")):
        folder.mkdir()
        (folder / name).write_text("{}")

    def key(asked=ASKED, machine=MACHINE, own=None):
        return generation_key(asked, machine, [recipes], own)

    before = key()
    assert key() == key(machine={**MACHINE, "memory": {"total_bytes": 8, "available_bytes": 1}}) == before
    assert key(asked={"request": [["gpt2"], ["cpu"]]}) != before
    assert key(machine={**MACHINE, "host": {"system": "Darwin"}}) != before
    assert key(own=templates) != before
    os.utime(recipes / "bert.json", ns=(1, 1))  # a file of the same size counts by its time
    touched = key()
    (recipes / "bert.json").write_text("{ }")
    os.utime(recipes / "bert.json", ns=(1, 1))
    assert len({before, touched, key()}) == 3
