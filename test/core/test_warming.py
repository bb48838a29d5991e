"""What the warm parent of suites does to the garbage collector, and templates that are read once."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from generators.suites.user_templates import FolderAlone
from hardware.gc_control import uncollected
from hardware.testing import warm


@pytest.fixture
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_nothing_is_collected_while_much_is_imported_and_what_came_is_left_alone() -> None:
    gc.unfreeze()
    with uncollected():
        assert not gc.isenabled()
        came = [[]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(one is came for one in gc.get_objects())
    with pytest.raises(ImportError), uncollected():
        raise ImportError("broken")
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled(), "it is left as it was found"


@pytest.mark.usefixtures("collector")
def test_what_was_imported_is_frozen_before_pytest_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr(warm, "_warmed_here", False)
    monkeypatch.setattr(warm, "_import_all", lambda _suites: seen.append(("import", gc.isenabled())))
    monkeypatch.setattr(warm, "_warm_pytest", lambda: seen.append(("pytest", gc.get_freeze_count() > 0)))
    gc.unfreeze()
    warm.warm_up([])
    assert seen == [("import", False), ("pytest", True)]


def test_a_template_is_read_once_so_that_all_suites_of_a_command_are_made_from_the_same(tmp_path: Path) -> None:
    def environment() -> jinja2.Environment:
        return jinja2.Environment(loader=FolderAlone([tmp_path]), autoescape=True)

    file = tmp_path / "one.j2"
    file.write_text("first", encoding="utf-8")
    first = environment()
    assert first.get_template("one.j2").render() == "first"
    file.write_text("second", encoding="utf-8")
    os.utime(file, (1, 1))
    assert first.get_template("one.j2").render() == "first"
    assert environment().get_template("one.j2").render() == "second"
