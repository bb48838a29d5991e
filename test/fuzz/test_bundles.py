"""Bundles: what is packed unpacks below its own folder, and an unpacked one that was changed runs nothing by being
read. Suites on disk are read the same way."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from made_page import planned
from readers import check_terminal
from watched import Opened, Sentinel, Surroundings, invoked, refused_or

from generators.suites.bundle import write_bundle
from generators.suites.suite_files import state_of
from hardware.errors import UsageError
from hardware.testing.bundle_runner import SUITES, chosen, main, read_bundle
from hardware.testing.suite_file import read_suite

CELL = "bert/fill-mask/cpu/float32"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "suite.zip"
    write_bundle(path, [planned("webgpu")], {"torch": "2.13.0"})
    return path


@pytest.fixture
def unpacked(packed: Path, place: Path) -> Path:
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(place)
    return place / "suite"


def test_names_in_a_bundle_stay_below_its_folder_on_every_system(packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        entries = archive.infolist()
    assert len(entries) > 100
    for entry in entries:
        for path in (PurePosixPath(entry.filename), PureWindowsPath(entry.filename)):
            assert not path.is_absolute()
            assert not path.drive
            assert ".." not in path.parts
            assert path.parts[0] == "suite"
        assert entry.external_attr >> 16 == 0o644  # a plain file: no link, nothing that runs by itself


def test_a_bundle_whose_folder_would_lie_above_is_refused(place: Path) -> None:
    for name in ("..zip", "...zip", "....zip", ".zip", "suite.tar"):
        with pytest.raises(UsageError, match="isn't a zip file"):
            write_bundle(place / name, [planned("webgpu")], {})


@pytest.mark.fuzz(150)
def test_an_index_that_was_changed_is_read_or_refused(fuzz: Any, unpacked: Path, sentinel: Sentinel) -> None:
    index = json.loads((unpacked / "bundle.json").read_text())
    (unpacked / "test_outside.py").write_text(
        f"CELL = 'bert/fill-mask/cpu/float32'\nopen({str(sentinel.path)!r}, 'w')"
    )
    around = Surroundings(unpacked.parent.parent, unpacked / "bundle.json")

    for hostile in fuzz:
        told = hostile.changed(index)
        if hostile.random() < 0.3 and isinstance(told.get("suites"), list):
            name = hostile.choice(
                ("../test_outside.py", "..", ".", "conftest.py", str(unpacked / "test_outside.py"), hostile.name())
            )
            told["suites"].append(
                {"file": name, "cell": "bert/fill-mask/cpu/float32", "required": True, "verdict": {}}
            )
        (unpacked / "bundle.json").write_bytes(hostile.line(told))
        with Opened(unpacked) as opened:
            carried = refused_or(read_bundle, unpacked)
        assert not {
            name for name in opened.names if not name.startswith(("open bundle.json", "open suites/test_", "compile"))
        }
        for suite in carried or ():
            assert suite.suite.path.parent == unpacked / SUITES
        if carried:
            refused_or(chosen, carried, [], [hostile.text()], [])
    (unpacked / "bundle.json").write_text(json.dumps(index))
    around.check()
    assert read_bundle(unpacked)


@pytest.mark.fuzz(40)
def test_a_bundle_says_what_is_wrong_in_one_line(
    fuzz: Any, unpacked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.loads((unpacked / "bundle.json").read_text())

    for hostile in fuzz:
        (unpacked / "bundle.json").write_bytes(hostile.line(hostile.changed(index)))
        words = hostile.choice(
            (["--list"], ["--list", "--device", hostile.text()], ["--list", "--select", hostile.text()])
        )
        code = main(unpacked, [word for word in words if word])
        out, err = capsys.readouterr()
        assert code in (0, 4, 5)
        if "usage: run.py" not in err:  # the rest of that is argparse's
            check_terminal(out + err)
            assert len(err.splitlines()) <= 1


@pytest.mark.fuzz(150)
def test_a_suite_is_read_without_running_it(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    text = planned("webgpu").text
    lines = text.splitlines(keepends=True)

    for hostile in fuzz:
        changed = list(lines)
        for _ in range(hostile.randint(1, 3)):
            at = hostile.randrange(len(changed))
            changed[at] = hostile.choice(
                (f"CELL = {hostile.text()!r}\n", f"{hostile.text()}\n", f"x = {'(' * 500}\n", changed[0])
            )
        data = "".join(changed).encode(errors="surrogatepass")
        path = place / hostile.choice(("test_a.py", "test_\x1b[2J.py", "test_::error::x.py"))
        path.write_bytes(hostile.bytes(data) if hostile.random() < 0.2 else data)
        suite = refused_or(read_suite, path)
        assert suite is None or suite.cell.id
        refused_or(state_of, path, text)


@pytest.mark.fuzz(3)
def test_a_folder_of_suites_is_compared_without_running_any(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    whole = planned("webgpu").text

    for hostile in fuzz:
        shutil.rmtree(place)
        place.mkdir()
        code = f"\nimport os\nos.system('touch {sentinel.path}')\n"
        (place / "conftest.py").write_text(code)
        for name in ("test_a.py", "test_\x1b[2J\n::error::x.py", "test_b.py"):
            (place / name).write_text(whole.replace("bert", hostile.choice(("bert", "gpt2"))) + code)
        if hostile.random() < 0.5:
            hostile.trap(place / "test_c.py", place.parent)
        around = Surroundings(place.parent, place)
        code_, out, _ = invoked("check", str(place))
        check_terminal(out)
        assert code_ == 1
        around.check()
