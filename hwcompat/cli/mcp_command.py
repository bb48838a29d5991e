"""`hwcompat mcp`: a server of the Model Context Protocol on standard input and output.

Each tool is a command of this program with `--format json` in a process of its own: a runtime that crashes doesn't
end the session, and what libraries print doesn't get between the messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from hwcompat.generators.models.given_recipe import FACTORY
from hwcompat.generators.project.project_reader import exact_cell
from hwcompat.hardware.cell import Cell
from hwcompat.hardware.errors import HwCompatError, UsageError, echo
from hwcompat.hardware.evidence.versions import RELEASE
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import run
from hwcompat.hardware.safe_read import parsed_json

from . import OWN_PROGRAM
from .option_table import FOLDER

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_READING_S = 300.0
_RUNNING_S = 3600.0
_LONGEST_ERROR = 1000
_INSTRUCTIONS = (
    "hwcompat tells whether a machine-learning model works on a device. A cell is model/task/target/precision: "
    "bert/fill-mask/openvino/float32. Say with a level what it is based on: measured, imported, expired, predicted "
    "or assumed. Unknown means that nothing shows whether it works."
)


@click.command("mcp", short_help="Serve what is known to assistants (Model Context Protocol).")
@click.option("--allow-run", is_flag=True, help="Also offer the tool run, which writes and runs the suite of a cell.")
@click.option("--evidence", type=FOLDER, metavar="DIR", help="Folder of evidence. Default: hwcompat-out/evidence.")
def mcp_command(allow_run: bool, evidence: Path | None) -> int:
    """Serve the Model Context Protocol on standard input and output. Start it from an assistant's settings.

    Tools: detect, list_targets, explain, fit, diagnose and matrix, which only read, and run with --allow-run. Answers
    are the JSON of the commands. Needs the package mcp.
    """
    if find_spec("mcp") is None:
        raise UsageError("the server can't start", why="mcp isn't installed", fix="make setup-mcp")
    server_of(Tools(evidence=("--evidence", str(evidence)) if evidence else ()), allow_run=allow_run).run("stdio")
    return 0


def server_of(tools: Tools, *, allow_run: bool) -> MCPServer:
    """Return the server with its tools; `run` is among them only if it is allowed."""
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("hwcompat", version=RELEASE, instructions=_INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.detect, tools.list_targets, tools.explain, tools.fit, tools.diagnose, tools.matrix):
        server.tool(annotations=reads)(_with_reason(tool))
    if allow_run:
        server.tool(annotations=ToolAnnotations(read_only_hint=False, open_world_hint=False))(_with_reason(tools.run))
    return server


def _with_reason(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a tool whose errors keep their reason: the client isn't told those of other classes."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def answered(*arguments: Any, **named: Any) -> dict[str, Any]:
        try:
            return tool(*arguments, **named)
        except HwCompatError as error:
            raise ToolError(str(error)) from error

    return answered


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools of the server. Their docstrings are what an assistant reads. `evidence` are words of a command."""

    evidence: tuple[str, ...] = ()

    def detect(self) -> dict[str, Any]:
        """Describe this machine: processor, memory, accelerators, storage, libraries and targets."""
        return _answer("devices", "list")

    def list_targets(self) -> dict[str, Any]:
        """List the targets, whether this machine may have each, and why not."""
        return {"targets": self.detect()["targets"]}

    def explain(self, cell: str) -> dict[str, Any]:
        """Explain the verdict of a cell (model/task/target/precision): prediction, rules, and what was measured."""
        return _answer("explain", *self.evidence, "--", Cell.parse(cell).id)

    def fit(
        self,
        model: str,
        memory: list[str] | None = None,
        context: int | None = None,
        batch: int = 1,
        precision: str = "",
        training: bool = False,
    ) -> dict[str, Any]:
        """Tell whether a model type, or a folder with a config.json, fits into memory such as 24GiB (default: the
        devices of this machine), with a context in tokens and a batch size; training counts AdamW."""
        if FACTORY.fullmatch(model):
            raise UsageError(f"{echo(model)} is code, which this tool doesn't run")
        words = [f"--memory={one}" for one in memory or ()] + [f"--batch={batch}"] + ["--training"] * training
        words += [f"--context={context}"] if context else []
        words += [f"--precision={precision}"] if precision else []
        return _answer("fit", *words, "--", model)

    def diagnose(self, text: str) -> dict[str, Any]:
        """Find the cause in a traceback, a log or a complaint, and say what to do. Nothing that it names is run."""
        return _answer("diagnose", "-", given=text)

    def matrix(self, models: list[str], targets: list[str] | None = None) -> dict[str, Any]:
        """Tell which of these model types work on which targets (default: all), with the basis of each level."""
        if not models:
            raise UsageError("name at least one model")
        words = [f"--model={one}" for one in models] + [f"--targets={one}" for one in targets or ()]
        return _answer("matrix", *words, *self.evidence)

    def run(self, cell: str) -> dict[str, Any]:
        """Write and run the suite of a cell on this machine, record evidence, and report. Takes minutes."""
        of = Cell.parse(exact_cell(cell))
        words = (f"--model={of.model}", f"--task={of.task}", f"--device={of.target}", f"--precision={of.precision}")
        return _answer("run", *words, *self.evidence, limit_s=_RUNNING_S)


def _answer(command: str, *words: str, given: str = "", limit_s: float = _READING_S) -> dict[str, Any]:
    """Return the JSON that a command prints, whatever its exit code. Raises `HwCompatError` with its error if it
    prints none."""
    sub = words[:1] if command == "devices" else ()
    line = (*OWN_PROGRAM, command, *sub, "--format=json", "--quiet", *words[len(sub) :])
    done = run(line, limit_s=limit_s, given=given.encode(errors="replace") or b"\n")
    try:
        found: dict[str, Any] = parsed_json(done.stdout)
    except ValueError as error:
        said = [text for text in done.stderr.splitlines() if text.startswith("error: ")] or [done.stderr]
        why = one_line(said[-1].removeprefix("error: "), longest=_LONGEST_ERROR)
        raise HwCompatError(why or f"{command} ended with {done.returncode} after {done.seconds:.0f} s") from error
    return found
