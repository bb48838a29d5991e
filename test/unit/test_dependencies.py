"""What we depend on is pinned, each in one version; a service that wasn't asked isn't taken for a clean answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from benchmarks.dependencies import (
    CONSTRAINTS,
    WEB,
    audit_npm,
    audit_python,
    brought_along,
    pinned,
    read_npm_audit,
    read_pip_audit,
    requirements_in,
)

ROOT = Path(__file__).parents[2]
OWN_ENVIRONMENTS = re.compile(r"--group (bundle|audit|package|rival-warpt)$|transformers==\$\*")
"""What a stranger's machine has, tools that are none of ours, a rival as it comes, and another transformers with what
it wants."""


ONLY_OTHERS = {"extra openvino", "extra optimise"}
"""Extras that only include other extras."""


def _places() -> dict[str, list[Requirement]]:
    """What is pinned by its place, the constraints among them."""
    return pinned() | {CONSTRAINTS.name: [*requirements_in(CONSTRAINTS)]}


def _pins() -> dict[str, dict[str, str]]:
    """Specifiers by package, and in which place each stands."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for place, requirements in _places().items():
        for one in requirements:
            found[canonicalize_name(one.name)][place] = str(one.specifier)
    return found


def _loose(one: Requirement) -> bool:
    specifiers = list(one.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "==" and not specifiers[0].version.endswith("*")
    return not exact or one.url is not None or Version(specifiers[0].version).local is not None


def test_every_requirement_is_pinned() -> None:
    assert _places().keys() >= {"requirements.txt", "group dev", "extra openvino-only"}
    for place, requirements in _places().items():
        assert requirements or place in ONLY_OTHERS, place
        assert [str(one) for one in requirements if _loose(one)] == [], place
        names = [canonicalize_name(one.name) for one in requirements]
        assert sorted(set(names)) == sorted(names), place
    loose = "torch|torch>=2|torch==2.*|torch==2.13.0,!=2.12|torch==2.13.0+cpu|torch @ https://example.org/torch.whl"
    assert [text for text in loose.split("|") if not _loose(Requirement(text))] == []
    assert not _loose(Requirement("torch==2.13.0"))


def test_no_package_has_two_versions() -> None:
    pins = _pins()
    assert {name: by_file for name, by_file in pins.items() if len(set(by_file.values())) > 1} == {}
    assert [name for name, by_file in pins.items() if CONSTRAINTS.name in by_file and len(by_file) > 1] == []


def test_what_everything_needs_is_asked_for_from_a_version_on_and_is_tested_in_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floors = {canonicalize_name(one.name): one.specifier for one in map(Requirement, project["dependencies"])}
    places = pinned()
    tested = {canonicalize_name(one.name): one.specifier for one in places["requirements.txt"]}
    for name, specifier in floors.items():
        assert [one.operator for one in specifier] == [">="], name
        assert next(iter(tested[name])).version in specifier, name
    brought = {canonicalize_name(one.name) for name in ("cpu", "openvino-only") for one in places[f"extra {name}"]}
    assert tested.keys() == floors.keys() | brought


def test_an_extra_and_the_group_of_its_name_are_the_same() -> None:
    """The group is for environments without this package; that of object storage names all, since pip can't."""
    places = pinned()
    for name in ("onnx", "diffusion", "upstream", "ray"):
        assert places[f"extra {name}"] == places[f"group {name}"], name
    assert {*places["extra object-storage"]} < {*places["group object-storage"]}


def test_all_that_requirements_bring_along_is_constrained() -> None:
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        pytest.skip("only the environment that make makes holds all that requirements name, and no other build of it")
    named = {canonicalize_name(one.name) for one in requirements_in(CONSTRAINTS)}
    assert set(brought_along()) - named == set()


def test_whatever_the_makefile_installs_is_pinned_to_the_last_package() -> None:
    """By constraints, or because nothing is brought along; apart from what is somebody else's environment."""
    lines = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if line.startswith("\t")]
    installing = [line for line in lines if "pip install" in line or "$(PIP)" in line or "$(PINNED)" in line]
    assert len(installing) > 5
    loose = [line for line in installing if "$(PINNED)" not in line and "--no-deps" not in line]
    assert [line for line in loose if not OWN_ENVIRONMENTS.search(line)] == []
    assert [line for line in lines if "npm i" in line] == []  # npm install, which may move a version; npm ci may not
    assert "-c constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8").partition("PINNED := ")[2][:40]
    assert "constraints.txt" in (ROOT / "action.yml").read_text(encoding="utf-8")


def test_what_comes_from_npm_is_locked_by_hashes() -> None:
    wanted = json.loads((WEB / "package.json").read_text(encoding="utf-8"))["dependencies"]
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert lock[""]["dependencies"] == wanted
    for name, version in wanted.items():
        assert lock[f"node_modules/{name}"]["version"] == version
    for name, one in lock.items():
        if name:
            assert one["integrity"].startswith("sha512-"), name
            assert "resolved" not in one, name  # whose registry it is, is the user's to say


def ended(code: int = 0, out: Any = "", error: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, out if isinstance(out, str) else json.dumps(out), error)


COUNTED = {"dependencies": {"total": 37}}
CLEAN = {"name": "jinja2", "version": "3.1.6", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0)"}
ADVISED = {"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"], "aliases": []}]}
ERROR = "WARNING: x\nrequests.exceptions.ConnectionError: Failed to resolve 'example.org'"


def test_pip_audit_is_believed_of_what_it_looked_at_alone() -> None:
    for done, code, said in (
        (ended(0, {"dependencies": [CLEAN]}), 0, "1 package(s) looked at, 0 advisories"),
        (ended(1, {"dependencies": [CLEAN, ADVISED]}), 1, "x 1: PYSEC-1, fixed in 2"),
        (ended(0, {"dependencies": [SKIPPED]}), 5, "0 package(s) looked at"),  # pip-audit itself says 0 here
        (ended(0, {"dependencies": [CLEAN, SKIPPED]}), 5, "NOT ASKED: 1 of 2"),
        (ended(1, {"dependencies": [ADVISED, SKIPPED]}), 1, "NOT ASKED: 1 of 2"),
        (ended(1, "", ERROR), 5, "Failed to resolve"),
        (ended(0, "", ""), 5, "it ended with 0 and said nothing"),
        (ended(0, "[]", ""), 5, "NOT ASKED"),
    ):
        found = read_pip_audit(done, "Python")
        assert (found.exit_code, said in found.text()) == (code, True), (said, found)


def test_npm_audit_is_believed_of_what_it_counted_alone() -> None:
    for done, code, said in (
        (ended(0, {"vulnerabilities": {}, "metadata": COUNTED}), 0, "37 package(s) looked at, 0 advisories"),
        (ended(1, {"vulnerabilities": {"tar-fs": {"severity": "high"}}, "metadata": COUNTED}), 1, "tar-fs: high"),
        (ended(1, {"message": "405 Method Not Allowed", "error": {"summary": ""}}), 5, "405 Method Not Allowed"),
        (ended(0, {"vulnerabilities": {}}), 5, "NOT ASKED"),
        (ended(1, "", "npm error audit endpoint returned an error"), 5, "endpoint returned an error"),
    ):
        found = read_npm_audit(done, "npm")
        assert (found.exit_code, said in found.text()) == (code, True), (said, found)


def tool(folder: Path, name: str, out: object, code: int) -> Path:
    """A program that says something whatever it is asked, and keeps what it was asked."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\n"
        f"asked = [pathlib.Path(word).read_text() if word.endswith('.txt') else word for word in sys.argv[1:]]\n"
        f"pathlib.Path({str(folder / name)!r} + '.asked').write_text(chr(10).join(asked))\n"
        f"print({json.dumps(out)!r})\nsys.exit({code})\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def test_every_pin_is_asked_about(tmp_path):
    program = tool(tmp_path, "pip-audit", {"dependencies": [CLEAN]}, 0)
    assert audit_python([str(program)], "osv").exit_code == 0
    asked = (tmp_path / "pip-audit.asked").read_text()
    assert {f"{name}{next(iter(by_file.values()))}" for name, by_file in _pins().items()} <= set(asked.split())
    assert "--no-deps" in asked  # nothing is resolved, nothing is installed


def test_a_program_that_is_not_there_is_not_asked(tmp_path):
    assert audit_npm([str(tmp_path / "npm")]).exit_code == 5
    assert audit_python([str(tmp_path / "pip-audit")], "pypi").exit_code == 5


def test_the_command_ends_as_the_worst_of_all_answers(tmp_path):
    pip_audit = tool(tmp_path, "pip-audit", {"dependencies": [SKIPPED]}, 0)
    npm = tool(tmp_path, "npm", {"vulnerabilities": {}, "metadata": COUNTED}, 0)
    words = ("-m", "benchmarks.dependencies", "audit", "--pip-audit", str(pip_audit), "--npm", str(npm))
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 5, done.stderr
    assert b"npm: 37 package(s) looked at" in done.stdout
