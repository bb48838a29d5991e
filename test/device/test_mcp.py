"""`hwcompat mcp` as an assistant uses it: the package's own client starts the server and calls its tools."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from front_doors import ROOT, invoke

CELL = "bert/fill-mask/cpu/float32"
CLIENT = """
import json, sys
import anyio
from mcp import Client, StdioServerParameters

async def main():
    arguments, calls = json.load(sys.stdin)
    server = StdioServerParameters(command=sys.executable, args=arguments)
    async with Client(server) as client:
        tools = {one.name: one.annotations.read_only_hint for one in (await client.list_tools()).tools}
        answers = []
        for name, given in calls:
            try:
                answer = await client.call_tool(name, given)
                text = " ".join(getattr(part, "text", "") for part in answer.content)
                answers.append([bool(answer.is_error), answer.structured_content, text])
            except Exception as error:
                answers.append([True, None, str(error)])
    print(json.dumps([tools, answers]))

anyio.run(main)
"""


def session(
    folder: Path, calls: list[tuple[str, dict[str, Any]]], *options: str
) -> tuple[dict[str, bool], list[Any]]:
    """Return the tools of a server, with whether each only reads, and its answers to these calls."""
    python = ROOT / ".venv-mcp" / "bin" / "python"
    if not python.is_file():
        pytest.skip("mcp isn't installed: make setup-mcp")
    given = json.dumps([[str(ROOT / "hwcompat"), "mcp", *options], calls])
    done = subprocess.run(
        [python, "-c", CLIENT], cwd=folder, input=given, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    tools, answers = json.loads(done.stdout)
    return tools, answers


def test_the_tools_answer_with_the_json_of_the_commands(tmp_path: Path) -> None:
    calls = [
        ("detect", {}),
        ("list_targets", {}),
        ("explain", {"cell": CELL}),
        ("fit", {"model": "bert", "memory": ["1KiB", "24GiB"], "context": 128}),
        ("diagnose", {"text": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"}),
        ("matrix", {"models": ["bert"], "targets": ["cpu"]}),
    ]
    tools, answers = session(tmp_path, calls)
    assert tools == dict.fromkeys(("detect", "list_targets", "explain", "fit", "diagnose", "matrix"), True)
    assert [said for is_error, _, said in answers if is_error] == []
    machine, targets, explained, fits, diagnosed, matrix = (found for _, found, _ in answers)
    assert targets["targets"] == machine["targets"]
    assert "cpu" in {one["target"] for one in targets["targets"]}
    assert explained["cell"] == CELL
    assert explained["predicted"] == invoke("explain", CELL, "--format", "json").document["predicted"]
    assert [one["fits"] for one in fits["devices"]] == [False, True]
    assert diagnosed["errors"][0]["error_type"] == "out_of_memory"
    assert "bert" in json.dumps(matrix)
    assert not (tmp_path / "hwcompat-out").exists()


def test_a_mistake_is_an_error_with_its_reason_and_nothing_is_run_without_permission(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w').close()\nmodel = print\n", encoding="utf-8")
    calls = [
        ("explain", {"cell": "bert"}),
        ("explain", {"cell": "bert/fill-mask/abacus/float32"}),
        ("fit", {"model": "mine:model"}),
        ("fit", {"model": "--training"}),
        ("diagnose", {"text": ""}),
        ("matrix", {"models": []}),
        ("run", {"cell": CELL}),
    ]
    _, answers = session(tmp_path, calls)
    assert [is_error for is_error, *_ in answers] == [True] * len(calls), answers
    said = [text for *_, text in answers]
    assert "'bert' is not a cell" in said[0]
    assert "unknown device 'abacus'" in said[1]
    assert "is code, which this tool doesn't run" in said[2]
    assert "--training" in said[3]
    assert "is empty" in said[4]
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "hwcompat-out").exists()


def test_a_cell_runs_if_that_is_allowed_and_is_explained_by_its_evidence(tmp_path: Path) -> None:
    cell = "bert/fill-mask/all/float32"  # would be several cells
    options = ("--allow-run", "--evidence", str(tmp_path / "evidence"))
    calls = [("run", {"cell": CELL}), ("explain", {"cell": CELL}), ("run", {"cell": cell})]
    tools, ((_, ran, said), (_, explained, _), (is_error, *_)) = session(tmp_path, calls, *options)
    assert tools["run"] is False
    assert ran is not None, said
    assert explained["measured"]["basis"] == "measured"
    assert explained["measured"]["level"] == "high"
    assert is_error


def test_without_the_package_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwcompat.cli.mcp_command.find_spec", lambda name: None)
    done = invoke("mcp")
    assert (done.code, done.out) == (4, "")
    assert "mcp isn't installed" in done.err
    assert "setup-mcp" in done.err
