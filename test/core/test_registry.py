"""The registry of named objects, and the plugins that it finds: in a package and by entry points, on first use."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from hardware import plugins as plugin_module
from hardware import registry
from hardware.errors import BrokenPlugin, HwCompatError, UsageError
from hardware.plugins import Plugin, Plugins, plugins
from hardware.registry import Registry
from reports.report import own_parts


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
    besides = frozenset({"base"})
    yield Registry(
        group="hwcompat.things", package="things", kind=Thing, noun="thing", first=("second",), besides=besides
    )
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
    assert every.failures == {"broken": missing, "lost": missing, "odd": "TypeError: 'not a thing' is not a Thing"}
    for name, says in (("odd", "is not a thing"), ("lost", "can't be imported")):
        with pytest.raises(BrokenPlugin, match=f"plugin '{name}' .* {says}"):
            things.load(name)


@pytest.fixture
def registered(monkeypatch):
    """What other packages register, by name: an object, or an error that loading it raises."""
    found: dict[str, object] = {}

    def loaded(value):
        if isinstance(value, Exception):
            raise value
        return value

    def point(name, value):
        return SimpleNamespace(load=lambda: loaded(value), value=name)

    monkeypatch.setattr(registry, "entry_points", lambda _: {name: point(name, one) for name, one in found.items()})
    plugins.cache_clear()
    plugin_module._REGISTRY.forget()
    yield found
    plugins.cache_clear()
    plugin_module._REGISTRY.forget()


def test_all_that_our_parts_name_is_there():
    names = [one.name for one in plugins().loaded]
    assert names[:6] == ["fleet", "placement", "stress", "study", "triage", "web_page"]
    for one in plugins().loaded:
        named = [*one.commands, *one.jobs.values(), *one.checks.values(), *one.problems.values()]
        assert all(one.load(name) for name in named)
    assert all(isinstance(one, click.Command) for one in plugins().commands())


def test_another_package_brings_a_command_a_job_and_a_part_of_the_report(registered, monkeypatch):
    @click.command("wattage")
    def wattage() -> None:
        """Print watts."""

    def fails() -> None:
        raise HwCompatError("no meter is here")

    monkeypatch.setitem(sys.modules, "acme", SimpleNamespace(COMMANDS=(wattage,), job=lambda: 7, check=fails))
    registered["acme"] = Plugin(
        name="acme",
        package="acme",
        commands=("acme:COMMANDS",),
        jobs={"watts": "acme:job"},
        checks={"meter": "acme:check"},
    )
    assert wattage in list(plugins().commands())
    assert plugins().job("watts")() == 7
    (part,) = [one for one in own_parts(object) if one.name == "meter"]
    assert (part.state, part.reason) == ("failed", "no meter is here")


def test_broken_ones_are_listed_and_break_nothing(registered):
    registered |= {
        "gone": ImportError("no module named gone"),
        "odd": object(),
        "twice": Plugin(name="stress", package="twice"),
    }
    assert len(plugins().loaded) == 6
    assert set(plugins().broken) == {"gone", "odd", "twice"}
    found = {one.name: one for one in own_parts(object)}
    assert found["gone"].state == "failed"
    assert "no module named gone" in found["gone"].reason
    assert "a plugin stress already exists" in found["twice"].reason
    with pytest.raises(UsageError, match="no plugin provides mesh"):
        Plugins(loaded=(), broken={}).job("mesh")


def test_placement_keeps_its_earlier_name():
    earlier = importlib.import_module("hardware.placement")
    for name in ("HardwareAdapter", "place", "Workload"):
        assert getattr(earlier, name).__module__.startswith("hwcompat.plugins.placement.")
    with pytest.raises(AttributeError):
        earlier.nothing_of_the_kind  # noqa: B018
