"""The registry: modules of a package and entry points of a group, loaded on first use."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardware import registry
from hardware.errors import BrokenPlugin
from hardware.registry import Registry


@dataclass(frozen=True)
class Thing:
    """A kind whose instances are registered."""

    says: str


MINE = Thing("mine")
ODD = "not a thing"

MODULE = f"from {__name__} import Thing\nTHING = Thing({{says!r}})\n"


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Thing]]:
    """A package `things` with a module, a package and a broken module, and four entry points."""
    folder = tmp_path / "things"
    (folder / "second").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "base.py").write_text("")
    (folder / "_private.py").write_text("1 / 0\n")
    (folder / "first.py").write_text(MODULE.format(says="first"))
    (folder / "second" / "__init__.py").write_text(MODULE.format(says="second"))
    (folder / "broken.py").write_text("import nothing_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    declared = {
        "first": f"{__name__}:MINE",
        "mine": f"{__name__}:MINE",
        "odd": f"{__name__}:ODD",
        "lost": "nothing_there:THING",
    }
    points = {name: importlib.metadata.EntryPoint(name, value, "things") for name, value in declared.items()}
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "hwcompat.things" else {})
    yield Registry(group="hwcompat.things", package="things", kind=Thing, noun="thing", first=("second",))
    for name in [name for name in sys.modules if name.partition(".")[0] == "things"]:
        del sys.modules[name]


def test_names_are_those_of_modules_and_entry_points_and_none_is_imported(things: Registry[Thing]) -> None:
    assert things.shipped() == ("second", "broken", "first")
    assert things.names() == ("second", "broken", "first", "lost", "mine", "odd")
    assert not {"things.first", "things.second", "nothing_there"} & set(sys.modules)


def test_a_module_a_package_and_an_entry_point_are_loaded_alike(things: Registry[Thing]) -> None:
    assert [things.load(name).says for name in ("first", "second", "mine")] == ["first", "second", "mine"]
    assert "things.broken" not in sys.modules


def test_a_package_from_outside_takes_no_name_that_ships(things: Registry[Thing]) -> None:
    assert things.load("first").says == "first"
    assert "first" not in things.added()


def test_those_that_fail_are_named_with_their_reason_and_break_no_other(things: Registry[Thing]) -> None:
    every = things.load_all()
    assert list(every.found) == ["second", "first", "mine"]
    missing = "ModuleNotFoundError: No module named 'nothing_there'"
    assert every.failures == {"broken": missing, "lost": missing, "odd": "TypeError: 'not a thing' is no Thing"}


@pytest.mark.parametrize(("name", "says"), [("odd", "is no thing"), ("lost", "can't be imported")])
def test_a_plugin_that_cannot_be_used_is_an_error_that_names_it(
    things: Registry[Thing], name: str, says: str
) -> None:
    with pytest.raises(BrokenPlugin, match=f"plugin '{name}' .* {says}"):
        things.load(name)


def test_an_unknown_name_is_no_thing(things: Registry[Thing]) -> None:
    with pytest.raises(KeyError):
        things.load("third")
