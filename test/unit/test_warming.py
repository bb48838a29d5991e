"""What the warm parent does before a suite runs is heard by nobody, and nothing is done twice that takes time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from generators.suites.user_templates import FolderAlone
from hardware.gc_control import uncollected
from hardware.target import Target
from hardware.testing import warm

ROOT = Path(__file__).parents[2]


def test_nobody_hears_the_first_run_of_pytest():
    code = "from hardware.testing.warm import _warm_pytest\nprint('before')\n_warm_pytest()\nprint('after')\n"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")


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


@pytest.mark.usefixtures("collector")
def test_the_collector_is_left_as_it_was_found_whatever_an_import_raises() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError("broken")
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


@pytest.mark.usefixtures("collector")
def test_what_was_imported_is_out_of_sight_before_pytest_collects_after_its_first_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr(warm, "_warmed_here", False)
    monkeypatch.setattr(warm, "_import_all", lambda _suites: seen.append(("import", gc.isenabled())))
    monkeypatch.setattr(warm, "_warm_pytest", lambda: seen.append(("pytest", gc.get_freeze_count() > 0)))
    gc.unfreeze()
    warm.warm_up([])
    assert seen == [("import", False), ("pytest", True)]


def test_a_template_is_read_once_so_that_all_suites_of_a_command_are_made_from_the_same(tmp_path: Path) -> None:
    file = tmp_path / "one.j2"
    file.write_text("first", encoding="utf-8")
    environment = jinja2.Environment(loader=FolderAlone([tmp_path]), autoescape=True)
    assert environment.get_template("one.j2").render() == "first"
    file.write_text("second", encoding="utf-8")
    os.utime(file, (1, 1))
    assert environment.get_template("one.j2").render() == "first"
    assert (
        jinja2.Environment(loader=FolderAlone([tmp_path]), autoescape=True).get_template("one.j2").render()
        == "second"
    )


def test_no_child_is_forked_where_an_import_asked_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(warm, "_warmed_here", True)
    assert warm.may_fork(Target.parse("cuda"))
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert not warm.may_fork(Target.parse("cuda"))
    assert warm.may_fork(Target.parse("cpu"))


def test_imports_of_the_parent_ask_no_driver_and_children_do() -> None:
    code = (
        "import os\n"
        "from hardware.testing import warm\n"
        "seen, real = [], warm._import_all\n"
        "warm._import_all = lambda suites: (real(suites), seen.append(os.environ.get(warm._NO_DRIVER)))\n"
        "warm.warm_up([])\n"
        "print(seen, os.environ.get(warm._NO_DRIVER))\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "PYTORCH_NVML_BASED_CUDA_CHECK"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['1'] None\n"
