"""The wheel and the sdist: what is in them, and that the product works where the wheel was installed."""

from __future__ import annotations

import configparser
import email
import json
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from built_package import IN_WHEEL, ROOT, Built, build, foreign_folder, found_in, kept_by_git, pip, run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.dependencies import pinned
from hardware.evidence.revisions import checker_versions
from hardware.evidence.versions import RELEASE

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_IN_SDIST = (".ci/run", ".gitignore", ".dockerignore")
SUITE = "test_bert_fill_mask_cpu_float32.py"


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The wheel's files and scripts in a folder, with the plugins of `examples/` beside them."""

    folder: Path
    elsewhere: Path

    def script(self, name: str, *words: str, folder: Path | None = None) -> CompletedProcess[str]:
        return self._run([str(self.folder / "bin" / name), *words], folder)

    def python(self, *words: str, folder: Path | None = None) -> CompletedProcess[str]:
        return self._run([sys.executable, *words], folder)

    def shell(self, command: str, folder: Path) -> CompletedProcess[str]:
        return self._run(["sh", "-c", command], folder)

    def _run(self, words: list[str], folder: Path | None) -> CompletedProcess[str]:
        cache = str(self.elsewhere / "cache")
        return run(words, folder or self.elsewhere, PYTHONPATH=str(self.folder), HWCOMPAT_CACHE=cache)


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    if named := request.config.getoption("--built"):
        return found_in(Path(named).absolute())
    pytest.importorskip("setuptools", "77", reason="setuptools builds the wheel")
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    offline = ("install", "--no-index", "--no-deps", "--target", str(folder))
    pip(sys.executable, folder, *offline, str(built.wheel))
    return Installed(folder=folder, elsewhere=tmp_path_factory.mktemp("elsewhere"))


def test_the_wheel_holds_the_product_byte_for_byte_and_nothing_else(built: Built) -> None:
    found = {name: data for name, data in built.names().items() if ".dist-info/" not in name}
    kept = kept_by_git(*IN_WHEEL)
    assert len(kept) > 2000
    wanted = {f"hwcompat/{name.removeprefix('hwcompat/')}": (ROOT / name).read_bytes() for name in kept}
    assert sorted(found) == sorted(wanted)
    assert [name for name, data in wanted.items() if found[name] != data] == []


@pytest.mark.extended
def test_the_image_gets_what_the_wheel_is_built_from_and_nothing_else(tmp_path: Path) -> None:
    """The lines of `.dockerignore` that begin with `!` are all that there is to know of it here."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    context = kept_by_git(*allowed)
    assert {name.partition("/")[0] for name in context} == {path.name for one in allowed for path in ROOT.glob(one)}
    found = build(tmp_path, context)
    assert sorted(found.names()) == sorted(build(tmp_path / "all").names())


def test_the_sdist_holds_all_that_git_keeps(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in kept_by_git() if name not in found and name not in NOT_IN_SDIST] == []


def test_only_the_extra_for_the_cpu_brings_a_torch() -> None:
    """Whoever has one keeps it."""
    asked = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    names = {place: {canonicalize_name(Requirement(text).name) for text in texts} for place, texts in asked.items()}
    assert {place for place in names if {"torch", "transformers"} & names[place]} == {"cpu"}
    assert [place for place in pinned() if place.startswith("extra ") and place[6:] not in asked] == []


def test_the_script_is_the_program_and_the_version_that_of_evidence(built: Built) -> None:
    assert email.message_from_string(built.told("METADATA"))["Version"] == RELEASE
    assert built.wheel.name == f"hwcompat-{RELEASE}-py3-none-any.whl"
    parser = configparser.ConfigParser()
    parser.read_string(built.told("entry_points.txt"))
    assert dict(parser["pytest11"]) == {"hwcompat": "hwcompat.pytest_option"}
    assert dict(parser["console_scripts"]) == {"hwcompat": "hwcompat.cli.main_program:main"}


@pytest.mark.extended
def test_what_was_installed_is_of_the_same_version_and_makes_the_same_suites(installed: Installed) -> None:
    code = (
        "import json, sys\n"
        "from hwcompat.hardware.evidence.revisions import checker_versions\n"
        "from hwcompat.hardware.command_names import is_installed\n"
        "print(json.dumps([dict(checker_versions()), is_installed(), sys.path]))\n"
    )
    done = installed.python("-c", code)
    assert done.returncode == 0, done.stderr
    versions, is_installed, places = json.loads(done.stdout)
    assert (versions, is_installed) == (checker_versions(), True)
    assert [place for place in places if Path(place or installed.elsewhere) == ROOT] == []


def test_help_names_the_program_that_was_started(installed: Installed) -> None:
    for done in (installed.script("hwcompat", "--help"), installed.python("-m", "hwcompat", "--help")):
        assert done.returncode == 0, done.stderr
        assert "Usage: hwcompat [OPTIONS] COMMAND" in done.stdout
        assert ".py" not in done.stdout
    done = installed.script("hwcompat", "report", "--no-such-option")
    assert done.returncode == 4
    assert f"{installed.folder}/bin/hwcompat report --help" in done.stderr


@pytest.mark.extended
def test_a_suite_is_written_into_the_folder_and_the_command_that_is_printed_runs_it(
    installed: Installed, tmp_path: Path
) -> None:
    folder = foreign_folder(installed.elsewhere / "a user's")
    done = installed.script("hwcompat", "generate", "--model", "bert", "--device", "cpu", folder=folder)
    assert done.returncode == 0, done.stderr
    made = folder / "hwcompat-out" / "suites" / SUITE
    here = tmp_path / "suites"
    words = ("generate", "--model", "bert", "--device", "cpu", "--output-dir", str(here))
    assert run([sys.executable, str(ROOT / "hwcompat"), *words], tmp_path).returncode == 0
    assert made.read_bytes() == (here / SUITE).read_bytes()
    command = done.stderr.partition("Run them: ")[2].strip()
    assert command.endswith("hwcompat run --model bert --device cpu")
    ran = installed.shell(command, folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "high" in ran.stdout
    assert list((folder / "hwcompat-out" / "evidence").glob("*.jsonl"))
    assert {path.name for path in folder.iterdir()} - {*IN_WHEEL} == {"hwcompat-out"}


def test_a_bundle_is_packed_from_what_was_installed(installed: Installed) -> None:
    done = installed.script("hwcompat", "bundle", "suite.zip", "--model", "bert", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert (installed.elsewhere / "suite.zip").stat().st_size > 100_000


def test_the_plugins_of_the_examples_are_found_beside_it(installed: Installed, tmp_path: Path) -> None:
    import shutil

    for example in ("backend-plugin", "vendor-plugin"):
        shutil.copytree(ROOT / "examples" / example, tmp_path / example)
        offline = ("--no-index", "--no-deps", "--no-build-isolation", "--upgrade", "--target", str(installed.folder))
        pip(sys.executable, tmp_path, "install", *offline, str(tmp_path / example))
    done = installed.script("hwcompat", "devices", "list", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "mychip" in done.stdout
    assert any(one["vendor"].lower().startswith("mychip") for one in told["vendors"])
    done = installed.script("hwcompat", "generate", "--model", "bert", "--device", "mychip", "--list")
    assert (done.returncode, done.stdout) == (0, "bert/fill-mask/mychip/float32\n"), done.stderr
