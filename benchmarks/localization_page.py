"""The page of `benchmarks/localization.py`: the share of right places, and every fault."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

PLANNED = 60


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fault: its place, the place that was named, and the place with the largest error in the run."""

    where: str
    model: str
    fault: str
    broken: str
    named: str
    right: bool
    module_right: bool
    baseline: bool | None
    unheard: int
    finding: str


def page(rows: list[Row], stamp: str) -> str:
    """Return the page: the share of right places, compared with the place of largest error, and every fault."""
    versions = ", ".join(
        f"{one} {metadata.version(one)}" for one in ("torch", "transformers", "openvino", "onnxruntime")
    )
    groups = sorted({row.where for row in rows})
    lines = [
        "# Localization",
        "",
        f"`hwcompat localize CELL` named the broken module or node for {sum(row.right for row in rows)} of "
        f"{len(rows)} planted faults.",
        "",
        "It names the first module (torch) or node (OpenVINO, QNN) whose output differs from the reference when it "
        "gets the reference's inputs.",
        "",
        f"{len(rows)} of the {PLANNED} faults are measured. "
        * (len(rows) < PLANNED)
        + f"Measured by `python -m benchmarks.localization --kept FOLDER` on {stamp[:10]} with {versions}: "
        "one fault each, drawn by seed. A fault that leaves the outputs within the float32 tolerance is drawn again "
        f"({sum(row.unheard for row in rows)} were). Right is the module or node that was broken. A fault *in the "
        "file* is like a wrong conversion: the graph is wrong on any device, and its nodes are matched with torch's "
        "by their values. One *on the device* is in the copy that the device runs. Another node of the same module "
        "of torch counts as right only for the module. The baseline names the place with the largest error in an "
        "ordinary run; it can't be used if the graph itself is wrong.",
        "",
        "| where | faults | right place | right module | baseline |",
        "|---|---|---|---|---|",
    ]
    for group in [*groups, ""]:
        own = [row for row in rows if group in ("", row.where)]
        based = [row for row in own if row.baseline is not None]
        baseline = f"{sum(bool(row.baseline) for row in based)} of {len(based)}" if based else "-"
        right, module = sum(row.right for row in own), sum(row.module_right for row in own)
        lines.append(f"| {group or 'all'} | {len(own)} | {right} | {module} | {baseline} |")
    lines += ["", "| where | model | fault | broken | named | right |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = "yes" if row.right else "module" if row.module_right else "**no**"
        named = "the same" if row.right else f"`{row.named}` ({row.finding})"
        lines.append(f"| {row.where} | {row.model} | {row.fault} | `{row.broken}` | {named} | {verdict} |")
    return "\n".join([*lines, "", *_LIMITS, ""])


_LIMITS = (
    "## Limits",
    "",
    "- Functions between modules belong to the module that calls them: attention scores belong to that attention.",
    "- It examines one forward pass of the tiny model of a type, without a decoding cache or gradients. Checkpoints, "
    "own modules, graph files, int8 and `tpu` aren't supported.",
    "- Hooks turn off torch's fused paths of whole encoder layers; the finding says if the outputs then differ.",
    "- If a device is wrong only when it fuses several nodes, observing each node hides the fault; then the finding "
    "is `unnamed`.",
    "- QNN supports some nodes only as part of others (Erf inside a Gelu) and refuses them when they are observed: "
    "such a cell can't be localized. No fault was planted on QNN: ONNX files ran on ONNX Runtime's CPU.",
    "- OpenVINO's graph comes from its own converter instead of optimum-intel.",
    "- The faults here are planted in float32 and above its tolerance; in half precision a fault below the wider "
    "tolerance isn't detected.",
)
