"""From a project file to suites: the command line beats the file, and what can't be planned is reported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from recorded_machines import XEON, computer

from generators.options import Options
from generators.plan import PlannedSuite
from generators.project.project_plan import ProjectRun, plan_run
from generators.project.project_reader import parse_project
from hardware.detection import HardwareInfo, detect
from hardware.errors import NothingMatched, UsageError

TEXT = """\
schema_version = 1
[defaults]
targets = ["cpu", "simulated"]
timeout = 50
[[model]]
name = "bert"
[[model]]
name = "vit"
targets = ["cpu"]
precisions = ["float32", "bfloat16"]
[[timeout]]
cells = "vit/*"
seconds = 70
[[tolerance]]
cells = "vit/*"
precision = "float32"
limit = 1e-4
reason = 'sums in \\"another" order'
[expected]
"bert/fill-mask/cpu/float32" = "high"
"bert/fill-mask/simulated/float32" = "high"
"gpt2/text-generation/cpu/float32" = "high"
"""


@pytest.fixture(scope="module")
def here() -> HardwareInfo:
    return detect(computer(XEON))


def project(text: str = TEXT, folder: Path = Path()):
    return parse_project(text, folder / "hwcompat.toml")


def run_of(here, text: str = TEXT, folder: Path = Path(), **given: object) -> ProjectRun:
    asked = Options(**given)
    return plan_run(project(text, folder), asked, tuple(asked.models or ()), here)


def plan(here, text: str = TEXT, folder: Path = Path(), **given: object) -> tuple[PlannedSuite, ...]:
    return run_of(here, text, folder, **given).planned


def ids(suites) -> list[str]:
    return [suite.cell.id for suite in suites]


def test_each_model_gets_its_own_targets_and_precisions_or_the_defaults(here):
    assert ids(plan(here)) == [
        "bert/fill-mask/cpu/float32",
        "bert/fill-mask/simulated/float32",
        "vit/image-classification/cpu/float32",
        "vit/image-classification/cpu/bfloat16",
    ]


def test_the_command_line_beats_the_file(here):
    for override, cells in (
        ({"devices": ("openvino",), "models": ("bert",)}, ["bert/fill-mask/openvino/float32"]),
        ({"models": ("gpt2",), "precisions": ("float16",)}, ["gpt2/text-generation/cpu/float16"]),
        ({"models": ("vit",), "precisions": ("float32",)}, ["vit/image-classification/cpu/float32"]),
    ):
        found = ids(plan(here, **override))
        assert found[: len(cells)] == cells
        assert all(cell.startswith(override["models"][0]) for cell in found)


def test_models_that_cannot_be_planned_or_are_asked_for_twice_are_reported_with_their_lines(here):
    text = TEXT.replace('"bert"', '"brt"').replace('name = "vit"', 'name = "vti"')
    with pytest.raises(UsageError) as caught:
        plan(here, text)
    assert "line 5" in str(caught.value)
    assert "line 7" in str(caught.value)
    text = TEXT.replace("[[timeout]]", '[[model]]\nname = "bert"\ntargets = ["cpu"]\n[[timeout]]')
    with pytest.raises(UsageError, match=r"line 11: bert/fill-mask/cpu/float32 is already in line 5"):
        plan(here, text)


def test_a_pattern_that_matches_no_cell_is_an_error_unless_the_command_line_narrows(here):
    for kind in ("timeout", "tolerance"):
        text = TEXT.replace(f'[[{kind}]]\ncells = "vit/*"', f'[[{kind}]]\ncells = "vti/*"')
        with pytest.raises(UsageError, match=r"'vti/\*'.* matches no cells"):
            plan(here, text)
        assert plan(here, text, models=("bert",))
        assert plan(here, text.replace('targets = ["cpu"]', 'targets = ["auto"]'))


def test_a_tolerance_stands_in_the_suite_with_its_reason_as_text_and_not_as_code(here):
    found = {suite.cell.id: suite for suite in plan(here)}
    suite = found["vit/image-classification/cpu/float32"]
    assert "        tolerance=0.0001,\n" in suite.text
    (reason,) = [line for line in suite.text.splitlines() if "tolerance_reason" in line]
    (call,) = ast.parse(f"f({reason.strip()})", mode="eval").body.keywords
    assert call.value.value == 'hwcompat.toml: sums in \\"another" order'
    assert "--config hwcompat.toml" in suite.text
    compile(suite.text, "suite", "exec")
    assert "tolerance=" not in found["vit/image-classification/cpu/bfloat16"].text
    assert "--config" not in found["bert/fill-mask/cpu/float32"].text


def test_timeouts_are_those_of_the_file_for_each_cell(here):
    run = run_of(here)
    assert run.timeouts["bert/fill-mask/cpu/float32"] == 50
    assert run.timeouts["vit/image-classification/cpu/bfloat16"] == 70


def test_what_the_command_line_leaves_out_is_told_from_what_is_missing(here):
    def absent(**given: object) -> dict[str, str]:
        return run_of(here, **given).left_out

    gone = "gpt2/text-generation/cpu/float32"  # in the lock, and asked for by no model
    assert absent() == {}
    assert absent(select=["*/cpu/*"]) == {"bert/fill-mask/simulated/float32": "--select, --skip or --shard"}
    assert absent(devices=("cpu",)) == {"bert/fill-mask/simulated/float32": "--device"}
    assert set(absent(models=("vit",))) == {*ids(plan(here, models=("bert",))), gone}
    shards = [absent(shard=f"{number}/2") for number in (1, 2)]
    assert sum(len(one) for one in shards) == 2
    with pytest.raises(NothingMatched):
        absent(select=["brt/*"])


def test_a_folder_of_the_repository_is_found_wherever_the_command_runs(here, tmp_path, monkeypatch):
    inside, outside = tmp_path / "repository", tmp_path / "elsewhere"
    for folder in (inside / "models", outside / "models" / "mine"):
        folder.mkdir(parents=True)
    (inside / "models" / "link").symlink_to(outside / "models" / "mine")
    text = 'schema_version = 1\n[[model]]\nname = "models/{}"\n'
    monkeypatch.chdir(outside)
    with pytest.raises(UsageError, match="isn't in the repository"):
        plan(here, text.format("mine"), inside)
    with pytest.raises(UsageError, match="is outside the repository"):
        plan(here, text.format("link"), inside)
    (inside / "models" / "rule.toml").symlink_to(outside / "models")
    with pytest.raises(UsageError, match=r"rule\.toml' is outside the repository"):
        plan(here, f'rules = ["models"]\n{text}', inside)
    (inside / "models" / "mine").mkdir()
    with pytest.raises(UsageError, match=r"it is empty"):
        plan(here, text.format("mine"), inside)


def test_a_revision_of_a_hub_id_is_the_one_that_is_looked_up(here, monkeypatch):
    import huggingface_hub

    asked = []
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda name, file, revision=None: asked.append((name, revision))
    )
    text = 'schema_version = 1\n[defaults]\ntargets = ["cpu"]\n[[model]]\nname = "me/bert-x"\nrevision = "v2"\n'
    (suite,) = plan(here, text)
    assert asked == [("me/bert-x", "v2")]
    assert "--revision v2" in suite.profile.missing
