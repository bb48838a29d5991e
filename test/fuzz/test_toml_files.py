"""TOML from anywhere: rules, and a project file: nothing of it is code, leads out of the repository or takes long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile
from watched import Sentinel, Surroundings, limited, refused_or

from generators.compatibility.rule import read_rules
from generators.compatibility.rules import RULES_FOLDER
from generators.compatibility.verdict import Level
from generators.project.project_plan import _located, update_expected
from generators.project.project_reader import read_project
from generators.project.toml_table import positions
from hardware.safe_read import parsed_toml

WHOLE = """
schema_version = 1
[defaults]
targets = ["cpu", "openvino"]
precisions = ["float32"]
timeout = 60
[[model]]
name = "bert"
tasks = ["fill-mask"]
[[model]]
name = "./models/mine"
targets = ["cpu"]
[[model]]
name = "google-bert/bert-base-uncased"
revision = "main"
[[timeout]]
cells = "bert/*/cpu/*"
seconds = 100.5
[[tolerance]]
cells = "bert/*/openvino/*"
precision = "float16"
limit = 1e-3
reason = "its rounding"
[expected]
"bert/fill-mask/cpu/float32" = "high"
"bert/fill-mask/openvino/float32" = "medium"
[[accepted_failure]]
cell = "bert/fill-mask/openvino/float32"
check = "backward"
reason = "known"
link = "https://example.org/1"
until = 2030-01-01
"""


def broken(hostile: Hostile, text: str) -> bytes:
    """A file of TOML with a value replaced, or with bytes changed."""
    lines = text.splitlines()
    for _ in range(hostile.randint(1, 3)):
        at = hostile.randrange(len(lines))
        key, sign, value = lines[at].partition(" = ")
        kind = hostile.randrange(5)
        if kind == 0 and sign:
            lines[at] = f"{key} = '''{hostile.text()}'''"
        elif kind == 1 and sign:
            lines[at] = f"{hostile.choice(('a.b', 'id', '[x]', key))} = {value}"
        elif kind == 2 and sign:
            values = ("1", "true", "[]", "{}", "1979-05-27", "inf", "nan", "9" * 50, "[[1]]", '""')
            lines[at] = f"{key} = {hostile.choice(values)}"
        elif kind == 3:
            lines.insert(at, lines[hostile.randrange(len(lines))])
        else:
            del lines[at]
            lines = lines or [""]
    data = "\n".join(lines).encode(errors="surrogatepass")
    return hostile.bytes(data) if hostile.random() < 0.2 else data


@pytest.mark.fuzz(300)
def test_a_project_is_read_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    path = place / "hwcompat.toml"
    read = []

    for hostile in fuzz:
        path.write_bytes(broken(hostile, WHOLE))
        project = refused_or(read_project, path)
        if project is None:
            continue
        read.append(project)
        for model in project.models:
            assert ":" not in model.name
            assert ".." not in model.name
            assert not model.name.startswith(("/", "~", "-"))
    assert read


@pytest.mark.fuzz(60)
def test_places_are_found_in_whatever_is_toml(fuzz: Any) -> None:
    for hostile in fuzz:
        text = broken(hostile, WHOLE).decode(errors="replace")
        try:
            parsed_toml(text)
        except ValueError:
            continue
        for place, span in positions(text).items():
            assert place
            assert 1 <= span.first <= span.last <= text.count("\n") + 1


@pytest.mark.fuzz(40)
def test_a_lock_is_changed_in_its_own_file_alone(fuzz: Any, place: Path) -> None:
    path = place / "hwcompat.toml"
    levels = {"bert/fill-mask/cpu/float32": Level.LOW, "gpt2/text-generation/cpu/float32": Level.HIGH}

    for hostile in fuzz:
        path.write_bytes(broken(hostile, WHOLE))
        before = path.read_bytes()
        around = Surroundings(place.parent, path)
        changed = refused_or(update_expected, path, levels)
        around.check()
        if changed is None:
            assert path.read_bytes() == before
        else:
            expected = read_project(path).expected
            assert {cell: expected[cell].level for cell in levels} == levels


@pytest.mark.fuzz(60)
def test_a_model_of_a_project_lies_in_its_repository(fuzz: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "hwcompat.toml").write_text(WHOLE)
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (place / "linked").symlink_to(outside)
    (place / "models").mkdir()
    (place / "models" / "mine").symlink_to("../../outside")
    project = read_project(place / "hwcompat.toml")
    monkeypatch.chdir(outside.parent)
    for name in ("linked", "./linked", "models/mine", "./models/mine", "outside", "inner/../outside"):
        assert refused_or(_located, project, name) is None, name

    for hostile in fuzz:
        name = hostile.name()
        try:
            found = refused_or(_located, project, name)
        except (OSError, ValueError):  # no name of a file: a project file may not hold it either
            continue
        if found is not None and Path(found).exists():
            assert Path(found).resolve().is_relative_to(place)


@pytest.mark.fuzz(300)
def test_a_rule_file_is_read_or_refused(fuzz: Any, place: Path, sentinel: Sentinel) -> None:
    path = place / "mine.toml"
    texts = [one.read_text(encoding="utf-8") for one in sorted(RULES_FOLDER.glob("*.toml"))]

    for hostile in fuzz:
        path.write_bytes(broken(hostile, hostile.choice(texts)))
        for rule in refused_or(read_rules, path) or ():
            assert rule.targets
            assert rule.reason.strip()


def test_tricks_of_size_and_depth_are_refused_at_once(place: Path) -> None:
    path = place / "hwcompat.toml"
    for text in (
        "a" + ".a" * 100_000 + " = 1",
        "a = " + "[" * 100_000,
        "a = " + "{b = " * 50_000,
        "[" + "a." * 50_000 + "a]",
        '"a"' + '."a"' * 50_000 + " = 1",
        "a = " + "1" * 100_000,
        "x" * 900_000,
        "- " * 400_000,
        "[[model]]\n" * 20_000,
        "".join(f"k{number} = 1\n" for number in range(20_000)),
        "schema_version = 1\n[defaults]\ntargets = [" + '"cpu",' * 100_000 + "]",
        "#\n" * 400_000,
        'a = """' + "\\\n" * 200_000 + '"""',
    ):
        path.write_text(text)
        assert limited(read_project, path, memory=400 << 20) is None, text[:10]
        assert not limited(read_rules, path, memory=300 << 20), text[:10]
