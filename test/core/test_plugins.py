"""Plugins: ours are found by their folder, others by entry points, and a broken one affects no other."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from hardware import plugins as module
from hardware import registry
from hardware.errors import HwCompatError, UsageError
from hardware.plugins import Plugin, Plugins, plugins
from reports.components import own_parts

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registered(monkeypatch):
    """What other packages register, by name: an object, or an error that loading it raises."""
    found: dict[str, object] = {}

    def loaded(value):
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: {
            name: SimpleNamespace(load=lambda value=value: loaded(value), value=name) for name, value in found.items()
        },
    )
    plugins.cache_clear()
    module._REGISTRY.forget()
    yield found
    plugins.cache_clear()
    module._REGISTRY.forget()


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
    assert "there is a plugin stress already" in found["twice"].reason


def test_a_job_that_no_part_does_is_refused_by_name():
    with pytest.raises(UsageError, match="the part that does mesh isn't installed"):
        Plugins(loaded=(), broken={}).job("mesh")


def test_placement_keeps_its_earlier_name():
    earlier = importlib.import_module("hardware.placement")
    for name in ("HardwareAdapter", "place", "Workload"):
        assert getattr(earlier, name).__module__.startswith("hwcompat.plugins.placement.")
    with pytest.raises(AttributeError):
        earlier.nothing_of_the_kind  # noqa: B018
