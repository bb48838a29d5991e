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


def test_names_are_known_without_an_import_and_things_are_loaded_by_name(things):
    assert things.shipped() == ("second", "broken", "first")
    assert things.names() == ("second", "broken", "first", "lost", "mine", "odd")
    assert not {"things.first", "things.second", "nothing_there"} & set(sys.modules)
    assert [things.load(name).says for name in ("first", "second", "mine")] == ["first", "second", "mine"]
    assert "things.broken" not in sys.modules
    assert "first" not in things.added(), "a package from outside takes no name that ships"
    with pytest.raises(KeyError):
        things.load("third")


def test_things_that_fail_are_named_with_their_reason_and_affect_no_other(things):
    every = things.load_all()
    assert list(every.found) == ["second", "first", "mine"]
    missing = "ModuleNotFoundError: No module named 'nothing_there'"
    assert every.failures == {"broken": missing, "lost": missing, "odd": "TypeError: 'not a thing' is no Thing"}
    for name, says in (("odd", "is no thing"), ("lost", "can't be imported")):
        with pytest.raises(BrokenPlugin, match=f"plugin '{name}' .* {says}"):
            things.load(name)
