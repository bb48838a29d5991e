"""The text of an issue: title, what happens, expected and actual, versions, how to run. Ready to paste."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwcompat.hardware.cell import GRAPH_TASK, label_of
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.redaction import redact
from hwcompat.plugins.triage.repro.captured_failure import CapturedFailure, Does, Shape, Way
from hwcompat.plugins.triage.repro.repro_script import Shown
from hwcompat.reports.text import code, fenced, markdown

from .repro_match import ReproMatch

if TYPE_CHECKING:
    from hwcompat.hardware.cell import Cell
    from hwcompat.hardware.evidence.record import RunLine

_NAMES = {
    Way.TORCH: "PyTorch",
    Way.OPENVINO_CONVERT: "OpenVINO's converter",
    Way.OPENVINO_GRAPH: "OpenVINO",
    Way.ONNX_EXPORT: "torch.onnx.export",
    Way.QNN_GRAPH: "ONNX Runtime's QNN provider",
    Way.ONNX_FILE: "ONNX Runtime",
    Way.WEB_FILE: "ONNX Runtime Web",
}
_CHECKS = {
    "matches_reference": "Expected are the outputs for the same weights and inputs in float64 on the CPU.",
    "honours_mask": "The inputs of the expected outputs differ only at positions that the attention mask excludes.",
    "generates_like_reference": "Expected is greedy decoding in float64 without a cache.",
    "cache_matches": "Logits decoded step by step are compared with one pass over the whole sequence.",
    "save_reload": "The model was saved and loaded again before it ran.",
    "backward": "The gradients of a weighted sum of all outputs are compared with float64.",
}
_DOES = {
    Does.BUILD: "building the model",
    Does.FORWARD: "a forward pass",
    Does.GRADIENTS: "a backward pass",
    Does.GENERATE: "decoding",
    Does.RELOAD: "a forward pass after saving and loading",
}
_PATH = re.compile(r"(?<![\w:/])(?:/[^\s/'\":,;)]+){2,}/|[A-Za-z]:\\(?:[^\s\\'\":,;]+\\)+")
_PRINTED = 4000


def plain(text: str) -> str:
    """Return text of any origin without paths of this machine, names of people, and secrets."""
    return redact(_PATH.sub("", text))


def title_of(cell: Cell, captured: CapturedFailure, model_class: str) -> str:
    """Return one line: the runtime, the model's class, what happens."""
    name = _NAMES[captured.step.way] if captured.step else str(cell.target)
    return one_line(f"{name}: {model_class or label_of(cell.model)}: {what_failed(captured)}", longest=160)


def what_failed(captured: CapturedFailure) -> str:
    """Return the failure in a few words."""
    if captured.shape is Shape.TIMEOUT:
        return f"no answer in {captured.seconds:.0f} s"
    if captured.shape is Shape.CRASHED:
        return f"the process ends with signal {captured.signal}"
    if captured.shape is Shape.RAISED:
        message = next((line for line in reversed(captured.message.strip().splitlines()) if line.strip()), "")
        if captured.left:
            return one_line(f"it doesn't support {captured.left}", longest=120)
        kind = "" if captured.exception == "WorkerError" else f"{captured.exception}: "  # whose message has the class
        return one_line(plain(f"{kind}{message}"), longest=120)
    if captured.error is None:
        return "tokens differ from the expected ones"
    return f"{captured.worst or 'output'} is off by {captured.error:.2g} of its scale"


def story_of(cell: Cell, captured: CapturedFailure) -> tuple[str, ...]:
    """Return what happens, in sentences of one line each."""
    step = captured.step
    if step is None:
        return ()
    where = f" on {step.device}" if step.device and step.way is not Way.OPENVINO_CONVERT else ""
    said = [f"What fails: {_DOES[step.does]} with {_NAMES[step.way]}{where}, in {cell.precision}."]
    if made_by := step.facts.get("made_by"):
        said.append(f"The graph was made by {one_line(made_by)}.")
    if version := step.facts.get("version"):
        said.append(f"It ran in onnxruntime-web {one_line(version)}, which the script gets as its first argument.")
    if step.facts.get("emulated"):
        said.append("It ran on Qualcomm's HTP emulator from the wheel for this machine, not on an NPU.")
    if cell.task == GRAPH_TASK:
        said.append(
            f"The model is the file {one_line(step.graph)}, inside the script or beside it: "
            "check that you may share it before you attach it."
        )
    if captured.left:
        said.append(f"With fallback enabled, these operators run on the host: {one_line(captured.left)}.")
    if captured.computed_in and captured.computed_in != cell.precision:
        said.append(
            f"The device computes in {one_line(captured.computed_in, longest=40)}; the tolerance is for that."
        )
    if captured.shape is Shape.NUMBERS:
        said.append(_CHECKS.get(captured.check, ""))
        over = "how far an output moves over several inputs" if captured.scales else "its standard deviation"
        said.append(f"Errors are the largest difference from the expected output over {over}.")
    return tuple(filter(None, said))


def issue_text(
    captured: CapturedFailure,
    shown: Shown,
    judgement: ReproMatch,
    *,
    title: str,
    story: Sequence[str],
    script: str,
    run: RunLine | None,
) -> str:
    """Return the Markdown of an issue. `run` is the run in which the failure was seen, None without one."""
    needs = re.search(r"^Needs +(.*)$", script, re.MULTILINE)
    how = re.search(r"^Run +(.*)$", script, re.MULTILINE)
    return "\n".join(
        [
            f"# {markdown(title)}",
            "",
            " ".join(markdown(one) for one in story),
            "",
            "## Expected and actual",
            "",
            fenced(_outcome(shown)),
            "",
            "## How to run",
            "",
            f"{code(how[1] if how else 'python repro.py')} "
            f"{'in an empty folder' if chr(10) + 'FILES = {' in script else 'beside the files in this folder'}. "
            f"It needs {markdown(needs[1]) if needs else 'the packages below'}, and exits with 1 if it fails.",
            "",
            "## Versions",
            "",
            fenced(_versions(shown)),
            *_run_facts(run, needs[1].split(", ") if needs else []),
            "",
            "## Checked",
            "",
            _checked(captured, judgement),
            "",
        ]
    )


def _outcome(shown: Shown) -> str:
    lines = [line for line in plain(shown.printed)[-_PRINTED:].splitlines() if "is expected" in line]
    if shown.code is None:
        return "\n".join([*lines, f"no answer in {shown.seconds:.0f} s"])
    if shown.exception:
        return "\n".join([*lines, plain(f"{shown.exception}: {shown.message}")[:_PRINTED]])
    return "\n".join([*lines, f"ended with {shown.code}"])


def _versions(shown: Shown) -> str:
    wanted = re.compile(r"python [\d.]+ on \S+ \S+|[A-Za-z][\w.-]* (?:\d[\w.+-]*|is missing)")
    found = [line for line in plain(shown.printed).splitlines() if wanted.fullmatch(line)]
    return "\n".join(found) or "the script printed none"


def _run_facts(run: RunLine | None, needs: Sequence[str]) -> list[str]:
    if run is None:
        return []
    wanted = {"python", *needs}
    versions = {_printed(name): _printed(version) for name, version in run.versions.items()}
    kept = {name: version for name, version in versions.items() if name in wanted or "driver" in name}
    if not kept:
        return []
    lines = "\n".join(f"{name} {version}" for name, version in sorted(kept.items()))
    return ["", f"First seen in a run on {markdown(run.started_at[:10])}, with:", "", fenced(lines)]


def _printed(text: str) -> str:
    """Return a name or version that can be printed: evidence is untrusted."""
    return one_line(plain(text), longest=60)


def _checked(captured: CapturedFailure, judgement: ReproMatch) -> str:
    why = markdown(plain(judgement.why), longest=600)
    if judgement.same:
        return f"The script ran by itself and failed the same way as the check {code(captured.check)}: {why}."
    return (
        f"**The script doesn't reproduce the failure of the check {code(captured.check)}**: {why}. "
        "Don't report it until you know why."
    )
