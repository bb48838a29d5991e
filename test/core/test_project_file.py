"""Reading hwcompat.toml: what it says, all that is wrong with it at once with lines, and nothing that leads out."""

from __future__ import annotations

import datetime
import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from generators.compatibility.verdict import Level
from generators.options import Options
from generators.project import project_reader
from generators.project.project_plan import plan_run
from generators.project.project_reader import parse_project, read_project, schema
from generators.project.toml_table import positions
from hardware.cell import Cell
from hardware.detection import detect
from hardware.errors import BrokenInput, UsageError
from hardware.testing.tolerances import loosest_limit

WHOLE = """\
schema_version = 1

[defaults]
targets = ["cpu", "nvidia"]
timeout = 60

[[model]]
name = "bert"  # a comment
tasks = ["fill-mask"]

[[model]]
name = "google-bert/bert-base-uncased"
revision = "main"
precisions = ["float16", "float32"]
targets = ["openvino"]

[[timeout]]
cells = "*/openvino/*"
seconds = 900

[[tolerance]]
cells = "bert/*"
limit = 1e-4
reason = "sums in another order"

[[tolerance]]
cells = "bert/*"
precision = "float16"
limit = 0.02
reason = "half precision"

[expected]
"bert/fill-mask/cpu/float32" = "high"
'bert/fill-mask/cuda/float32' = "none"

[[accepted_failure]]
cell = "bert/fill-mask/cpu/float32"
check = "matches_reference"
error_type = "numerical_mismatch"
reason = "a broken kernel"
link = "https://example.org/issues/1"
until = 2027-03-31
"""
ENTRY = WHOLE[WHOLE.index("[[accepted_failure]]") :]
CELL = Cell.parse("bert/fill-mask/cpu/float32")


def parse(text: str):
    return parse_project(text, Path("hwcompat.toml"))


def wrong(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return str(caught.value)


def with_entry(kind: str, body: str) -> str:
    return f'schema_version = 1\n[[model]]\nname = "bert"\n[[{kind}]]\n{body}\n'


def test_a_whole_file_is_read_with_the_line_of_each_thing():
    project = parse(WHOLE)
    bert, checkpoint = project.models
    assert (bert.name, bert.tasks, bert.targets, bert.line) == ("bert", ("fill-mask",), ("cpu", "cuda"), 7)
    assert (checkpoint.revision, checkpoint.precisions) == ("main", ("float16", "float32"))
    assert checkpoint.targets == ("openvino",)
    expected = project.expected["bert/fill-mask/cuda/float32"]
    assert (expected.level, expected.line) == (Level.UNSUPPORTED, 34)
    (accepted,) = project.accepted
    assert accepted.until == datetime.date(2027, 3, 31)
    assert (accepted.span.first, accepted.span.last) == (36, 42)
    assert accepted.text == ENTRY.rstrip("\n")


def test_of_patterns_that_match_the_last_one_counts_and_without_defaults_the_command_lines_do():
    project = parse(WHOLE)
    assert project.timeout_for(CELL) == 60
    assert project.timeout_for(Cell.parse("bert/fill-mask/openvino/float32")) == 900
    own = project.tolerance_for(CELL)
    assert (own.limit, own.stated) == (1e-4, "hwcompat.toml: sums in another order")
    assert project.tolerance_for(Cell.parse("bert/fill-mask/cpu/float16")).limit == 0.02
    assert project.tolerance_for(Cell.parse("vit/image-classification/cpu/float32")) is None
    (model,) = parse('schema_version = 1\n[[model]]\nname = "bert"\n').models
    assert (model.targets, model.precisions, model.tasks) == (("auto",), ("float32",), ())


def test_all_problems_are_told_at_once_in_the_order_of_lines():
    reported = wrong(
        'schema_version = 2\nmodles = 1\n[defaults]\ntargets = ["cdua"]\n[[model]]\nname = "bert"\n'
        'precisions = ["float23"]\ntasks = ["fil-mask"]\n[expected]\n"bert/fill-mask/cpu/float32" = "hihg"\n'
    )
    assert "has 6 problems" in reported
    places = [reported.index(f"line {number}:") for number in (1, 2, 4, 7, 8, 10)]
    assert places == sorted(places)
    for hint in ("'model'", "'cuda'", "'float32'", "'fill-mask'", "'high'"):
        assert f"Did you mean {hint}" in reported


def test_each_problem_names_its_line():
    head = "schema_version = 1\n"
    bert = f'{head}[[model]]\nname = "bert"\n'
    for text, line, message in (
        ('[[model]]\nname = "bert"\n', 0, "schema_version is missing"),
        ("schema_version = true\n", 1, "is unknown"),
        (head, 0, "it has no models"),
        (f"{head}model = 3\n", 2, "list of tables"),
        (f'{bert}revision = "main"\n', 4, "only Hub ids have revisions"),
        (f'rules = [".."]\n{bert}', 1, "'..' is outside the repository"),
        (f'rules = [""]\n{bert}', 1, "is not a file or folder"),
        (f'{head}[[model]]\ntargets = ["cpu"]\n', 2, "needs name"),
        (f"{bert}targets = []\n", 4, "a list of texts"),
        (f'{bert}targets = ["cpu", "cpu"]\n', 4, "twice"),
        (f'{bert}targets = ["openvino:XYZ"]\n', 4, "no variant"),
        (f'{bert}[defaults]\ntimeout = "60"\n', 5, "must be a number"),
        (f"{bert}[defaults]\ntimeout = 1e9\n", 5, "86400 seconds"),
        (f'{bert}[expected]\n"bert/fill-mask/cpu/float32" = "unknown"\n', 5, "unknown can't be expected"),
        (with_entry("timeout", 'cells = "*"\nseconds = nan'), 6, "finite number above 0"),
        (with_entry("tolerance", 'cells = "*"\nlimit = 1e-4'), 4, "needs reason"),
        (with_entry("tolerance", 'cells = "*"\nlimit = true\nreason = "x"'), 6, "must be a number"),
        (with_entry("tolerance", 'cells = "*"\nlimit = 1e-4\nreason = " "'), 7, "one line of printable text"),
        (with_entry("accepted_failure", 'cell = "bert"\nuntil = 2027-01-01T00:00:00'), 6, "without quotes and time"),
    ):
        reported = wrong(text)
        assert message in reported
        assert f"line {line}:" in reported if line else "line 0" not in reported


def test_a_limit_that_could_hide_everything_is_refused():
    for limit in ("inf", "nan", "-1e-4", "0", str(2 * loosest_limit()), "0.5", "1e400"):
        assert "must be" in wrong(with_entry("tolerance", f'cells = "*"\nlimit = {limit}\nreason = "because"'))


def test_a_model_is_never_a_path_that_leads_out_nor_arguments_that_are_code():
    for name in (
        "../model",
        "/etc",
        "~/model",
        "a/../../b",
        "models/net.pt2",
        "package.module:factory(size=open('x'))",
        "package.module:factory(3)",
        "../module:factory",
        "C:\\\\m",
        "$(id)",
        "",
        ".git/x",
    ):
        assert "line 3:" in wrong(f'schema_version = 1\n[[model]]\nname = "{name}"\n')


def test_the_lock_holds_exact_cells_of_known_targets():
    for cell, message in (
        ("bert/*/cpu/float32", "pattern"),
        ("bert/fill-mask/cpu", "is not a cell"),
        ("bert/fill-mask/cuda:1/float32", "Write bert/fill-mask/cuda/float32"),
        ("bert/fill-mask/nvidia/float32", "Write bert/fill-mask/cuda/float32"),
        ("bert/fill-mask/cdua/float32", "Did you mean 'cuda'"),
    ):
        reported = wrong(f'schema_version = 1\n[[model]]\nname = "bert"\n[expected]\n"{cell}" = "high"\n')
        assert message in reported


def test_an_accepted_failure_is_exact_has_a_reason_and_an_end_and_is_accepted_once():
    for old, new, message in (
        ('check = "matches_reference"\nerror_type = "numerical_mismatch"\n', "", "no check and no error_type"),
        ("until = 2027-03-31\n", "", "needs until"),
        ("2027-03-31", '"2027-03-31"', "a date without quotes"),
        ("https://example.org/issues/1", "JIRA-1", "isn't a link"),
        ("matches_reference", "matches_refrence", "Did you mean 'matches_reference'"),
        ("numerical_mismatch", "numerical_mismach", "Did you mean 'numerical_mismatch'"),
        ("numerical_mismatch", "upgrade_changed_numbers", "is accepted with the `numbers`"),
        ("reason", 'numbers = ["12"]\nreason', "isn't the hash"),
        ("bert/fill-mask/cpu/float32", "bert/fill-mask/*/float32", "pattern"),
    ):
        assert message in wrong(WHOLE.replace(ENTRY, ENTRY.replace(old, new)))
    assert "accepted twice, first in lines 36-42" in wrong(f"{WHOLE}\n{ENTRY}")


def test_what_is_not_toml_is_reported_with_its_line(tmp_path):
    for text, message in (
        ("schema_version = \n", "line 1"),
        ('schema_version = 1\n[expected]\n"a" = "high"\n"a" = "low"\n', "line 4"),
        ("[[accepted_failure]]\nuntil = 2027-13-45\n", "line 2"),
        ("a = " + "[" * 100_000, ""),
    ):
        with pytest.raises(BrokenInput, match="isn't valid TOML") as caught:
            parse(text)
        assert message in str(caught.value)
    path = tmp_path / "hwcompat.toml"
    for content in (None, b"\xff\xfe", b" " * 1_000_001):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BrokenInput, match="can't be read"):
            read_project(path)


def test_the_schema_takes_a_file_that_is_right_and_refuses_a_typing_error():
    levels = schema()["properties"]["expected"]["additionalProperties"]["enum"]
    assert levels == [*project_reader.LEVELS, "none"]  # of older files
    values = json.loads(json.dumps(tomllib.loads(WHOLE), default=str))
    jsonschema.validate(values, schema())
    values["model"][0]["target"] = ["cpu"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, schema())


def test_lines_are_found_whatever_the_text_looks_like():
    text = (
        'a = """\n[[not.a.table]]\nb = 1\n"""\n'
        "list = [ # ]\n  '[x]',\n  {inline = 1},\n]\n"
        "[[t]] # [y]\r\n\"quoted key\" = 1\n\n[t.sub]\nx.y = 2\n[[t]]\nz = '''\n=\n'''\n"
    )
    found = {place: (span.first, span.last) for place, span in positions(text).items()}
    assert found["a",] == (1, 4)
    assert found["list",] == (5, 8)
    assert found["t", 0, "quoted key"] == (10, 10)
    assert found["t", 0, "sub", "x", "y"] == (13, 13)
    assert found["t", 0] == (9, 13)
    assert found["t", 1, "z"] == (15, 17)
    assert found["t", 1] == (14, 17)


def test_code_that_a_project_file_names_runs_only_if_that_is_allowed_and_it_is_the_repositorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hwcompat.toml").write_text(
        'schema_version = 1\n[[model]]\nname = "json:factory(size=3)"\n', encoding="utf-8"
    )
    project = read_project(tmp_path / "hwcompat.toml")
    for allow, reason in ((False, "--allow-code"), (True, "isn't in the repository")):
        with pytest.raises(UsageError, match=reason):
            plan_run(project, Options(allow_code=allow), (), detect())
