"""The same request again: nothing is generated, and nothing is taken for unchanged that isn't."""

from __future__ import annotations

import os

import pytest

from generators.suites.manifest import generation_key, remember, what_is_there

ASKED = {"request": [["bert"], ["cpu"]]}
MACHINE = {"host": {"system": "Linux"}, "memory": {"total_bytes": 8, "available_bytes": 3}}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWCOMPAT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def suites(tmp_path):
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "test_a.py").write_text("a = 1\n")
    return folder


@pytest.fixture
def recipes(tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "bert.json").write_text("{}")
    return folder


def test_what_was_written_is_found_again(suites):
    remember(suites, "key", {"test_a.py": "(high, predicted)"}, ["no suite for b"])
    present = what_is_there(suites, "key")
    assert present == ({"test_a.py": "(high, predicted)"}, ["no suite for b"])


@pytest.mark.parametrize("change", ["key", "edited", "deleted", "manifest"])
def test_anything_that_differs_is_generated_again(suites, tmp_path, change):
    remember(suites, "key", {"test_a.py": "said"})
    if change == "edited":
        (suites / "test_a.py").write_text("a = 2\n")
    elif change == "deleted":
        (suites / "test_a.py").unlink()
    elif change == "manifest":
        next((tmp_path / "cache" / "generated").iterdir()).write_text("{broken")
    assert what_is_there(suites, "other" if change == "key" else "key") is None


def test_the_key_follows_request_machine_recipes_and_templates(recipes, tmp_path):
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "suite.py.j2").write_text("x")

    def key(asked=ASKED, machine=MACHINE, own=None):
        return generation_key(asked, machine, [recipes], own)

    before = key()
    assert key() == before
    assert key(asked={"request": [["gpt2"], ["cpu"]]}) != before
    assert key(machine={**MACHINE, "host": {"system": "Darwin"}}) != before
    assert key(own=templates) != before
    (recipes / "bert.json").write_text("{ }")
    assert key() != before


def test_a_template_of_the_same_size_counts_by_its_time(recipes, tmp_path):
    path = recipes / "bert.json"
    before = generation_key(ASKED, MACHINE, [recipes], None)
    os.utime(path, ns=(1, 1))
    assert generation_key(ASKED, MACHINE, [recipes], None) != before


def test_memory_that_is_free_just_now_is_no_change(recipes):
    now = {**MACHINE, "memory": {"total_bytes": 8, "available_bytes": 1}}
    assert generation_key(ASKED, MACHINE, [recipes], None) == generation_key(ASKED, now, [recipes], None)
