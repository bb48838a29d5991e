"""The action and the examples for servers: they parse, and every command in them has the options that it is given."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from hardware.command_line import run_command_line
from hardware.command_names import COMMAND_NAMES
from hwcompat.cli.earlier_scripts import GENERATION, REPORTER, commands_of
from hwcompat.cli.main_program import program

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
FILES = (ACTION, ROOT / "docs" / "ci" / "github-workflow.yml", ROOT / "docs" / "ci" / "gitlab-ci.yml")
SCRIPTS = {
    "run_test_generation.py": (GENERATION, "generate"),
    "hardware_compatibility_reporter.py": (REPORTER, "report"),
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def scripts(node: Any) -> Iterator[str]:
    """The shell of a file: `run` of steps on GitHub, `script` and its like on GitLab."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script", "after_script"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for one in node:
            yield from scripts(one)


def commands(shell: str) -> Iterator[list[str]]:
    """Our commands in a piece of shell, as words of the program."""
    for text in shell.replace("\\\n", " ").splitlines():
        found = re.search(r"(\w+\.py|\bhwcompat)\"?\s(.*)", text)
        words = re.split(r"\s(?:\|\||&&|;|>)\s", found[2])[0].replace('"${options[@]}"', "") if found else ""
        if found and found[1] in SCRIPTS:
            yield from commands_of(shlex.split(words), *SCRIPTS[found[1]])
        elif found and found[1] == "hwcompat" and words.split()[0] in COMMAND_NAMES:
            yield shlex.split(words)


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of a line, and the words after its name."""
    command: click.Command = program
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


def shell_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return (
        "\n".join(scripts(read(path)))
        if path.suffix == ".yml"
        else "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))
    )


def test_every_command_has_the_options_that_it_is_given() -> None:
    for path in (*FILES, ROOT / "docs" / "CI.md"):
        found = list(commands(shell_of(path)))
        assert found or "uses: " in path.read_text(encoding="utf-8")
        for line in found:
            command, words = command_of(line)
            options = {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}
            place = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
            while place < len(words):
                name, _, joined = words[place].partition("=")
                assert name in options, f"{path.name}: {line} has no {name}"
                one = options[name]
                value = joined or (words[place + 1] if place + 1 < len(words) and not one.is_flag else "")
                if isinstance(one.type, click.Choice) and "$" not in value:
                    assert value in one.type.choices
                place += 1 if one.is_flag or joined else 2


def test_the_actions_inputs_are_used_and_reach_the_shell_by_its_environment_alone() -> None:
    action, text = read(ACTION), ACTION.read_text(encoding="utf-8")
    assert set(action["inputs"]) >= {"model", "device", "fail-on", "baseline", "python"}
    assert [name for name in action["inputs"] if f"inputs.{name} " not in text] == []
    runs = [step for step in action["runs"]["steps"] if "run" in step]
    assert all("${{" not in step["run"] and step.get("shell") == "bash" for step in runs)
    assert "secrets." not in text
    steps = [step for job in read(FILES[1])["jobs"].values() for step in job["steps"]]
    given = [set(step.get("with", ())) for step in steps if str(step.get("uses")).startswith("OWNER/")]
    assert given
    assert all(one <= set(action["inputs"]) for one in given)


def test_other_actions_are_pinned_by_a_tag() -> None:
    for path in FILES[:2]:
        used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert used
        others = [one for one in used if not one.startswith("OWNER/")]
        assert [one for one in others if not re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+(\.\d+)*", one)] == []


def test_init_writes_a_project_file_and_a_workflow_that_installs_what_the_targets_need(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"")
    words = ["init", "--device", "openvino", "--device", "cuda", "--ci", "github", "--devcontainer"]
    assert run_command_line(program, words, program="hwcompat") == 0
    written = tomllib.loads((tmp_path / "hwcompat.toml").read_text())
    assert written["defaults"]["targets"] == ["openvino", "cuda"]
    assert [one["name"] for one in written["model"]] == ["./net.onnx"]
    workflow = tmp_path / ".github" / "workflows" / "hwcompat.yml"
    steps = [*scripts(read(workflow))]
    assert "'hwcompat[cpu,onnx,openvino]'" in steps[0]
    assert any(one.startswith("hwcompat run --config hwcompat.toml --device") for one in steps)
    machines = read(workflow)["jobs"]["compatibility"]["strategy"]["matrix"]["include"]
    assert [one["runner"] for one in machines] == ["ubuntu-latest", ["self-hosted", "gpu"]]
    reports = read(workflow)["jobs"]["report"]["strategy"]["matrix"]["include"]
    assert [(one["runner"], one["index"]) for one in reports] == [(one["runner"], one["index"]) for one in machines]
    assert [one["artifact"].startswith(two["build"]) for one, two in zip(machines, reports, strict=True)] == [
        True
    ] * 2
    container = json.loads((tmp_path / ".devcontainer" / "devcontainer.json").read_text())
    assert container["hostRequirements"] == {"gpu": "optional"}
    assert "hwcompat[cpu,onnx,openvino]" in container["postCreateCommand"]
    assert run_command_line(program, words, program="hwcompat") == 4  # nothing is overwritten without --force
    assert run_command_line(program, [*words, "--force"], program="hwcompat") == 0
    assert run_command_line(program, [*words[:5], "--ci", "gitlab", "--force"], program="hwcompat") == 0
    jobs = read(tmp_path / ".gitlab" / "hwcompat.yml")
    assert "tags" not in jobs["hwcompat openvino"]
    assert jobs["hwcompat cuda"]["tags"] == jobs["hwcompat report cuda"]["tags"] == ["gpu"]
    written = [*commands("\n".join([*steps, *scripts(jobs)]))]
    assert len(written) == 9
    for command, given in map(command_of, written):
        known = {name for one in command.params for name in one.opts}
        assert {word for word in given if word.startswith("--")} <= known


def test_init_writes_what_is_missing_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["init", "--model", "bert", "--ci", "github"]
    assert run_command_line(program, words, program="hwcompat") == 0
    Path("hwcompat.toml").write_text("# mine\n")
    Path(".devcontainer").write_text("")
    assert run_command_line(program, [*words, "--devcontainer", "--force"], program="hwcompat") == 4
    assert ".devcontainer is a file" in capsys.readouterr().err
    Path(".devcontainer").unlink()
    assert run_command_line(program, [*words, "--devcontainer"], program="hwcompat") == 0
    assert "kept hwcompat.toml" in capsys.readouterr().out
    assert Path(".devcontainer", "devcontainer.json").is_file()
    assert Path("hwcompat.toml").read_text() == "# mine\n"


def test_a_target_whose_device_a_hosted_runner_lacks_gets_a_runner_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hosted = ("cpu", "openvino", "openvino:CPU", "qnn:emulator", "tpu:xla-cpu", "webgpu", "simulated")
    others = ("openvino:NPU", "openvino:GPU", "webnn:npu", "qnn", "mps", "tpu", "cuda:1")
    words = [word for one in (*hosted, *others) for word in ("--device", one)]
    assert run_command_line(program, ["init", "--model", "bert", "--ci", "github", *words], program="hwcompat") == 0
    matrix = read(tmp_path / ".github" / "workflows" / "hwcompat.yml")["jobs"]["compatibility"]["strategy"]["matrix"]
    on = {one["target"]: (one["runner"] == "ubuntu-latest", "whl/cpu" in one["index"]) for one in matrix["include"]}
    assert on == {one: (one in hosted, one != "cuda:1") for one in (*hosted, *others)}
