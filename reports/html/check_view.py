"""What a report's page shows of one check: its figures in words, and all that its line of evidence holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hardware.evidence.record import EDITED, CheckLine, Outcome

from ..diagnosis import error_types
from .charts import strip
from .page import moment, size


@dataclass(frozen=True, kw_only=True)
class CheckView:
    """One check of a cell. `said` is what it left to say, `beyond` whether its error is larger than allowed.

    `strip` is where the error stands in a drawing from 0 to 100. `edited` is whether its suite was edited by hand:
    then even a pass proves nothing. `accepted` is why a project file accepts the failure, which it stays. `facts` is
    everything else, `native` and `offloaded` are operators with their counts, each in one text: there are too many
    for an element each.
    """

    name: str
    outcome: str
    asked: str
    ran_on: str
    error: str
    strip: float | None
    beyond: bool
    edited: bool
    accepted: str
    time: str
    memory: str
    said: str
    facts: str
    traceback: str
    native: str
    native_kinds: int
    offloaded: str
    offloaded_kinds: int

    @property
    def words(self) -> str:
        """The outcome in words."""
        return self.outcome.replace("_", " ")

    @property
    def is_failure(self) -> bool:
        """Whether something was tried and didn't work."""
        return Outcome(self.outcome).is_failure


def check_view(line: CheckLine, accepted: str = "") -> CheckView:
    """The view of a line; `accepted` is why a project file accepts its failure, if it does."""
    error, allowed = line.max_rel_error, line.tolerance
    shown = "" if error is None else f"{error:.1e} / {'–' if allowed is None else f'{allowed:.0e}'}"
    return CheckView(
        name=line.check_name,
        outcome=str(line.outcome),
        asked=line.requested_target,
        ran_on=line.actual_target or "",
        error=shown,
        strip=strip(error, allowed),
        beyond=error is not None and allowed is not None and not error <= allowed,
        accepted=accepted,
        edited=bool(line.conditions.get(EDITED)),
        time=f"{line.duration_s:.2f} s",
        memory=size(line.peak_memory_bytes),
        said=f"accepted failure: {accepted}; {_said(line)}" if accepted else _said(line),
        facts=" · ".join(_facts(line)),
        traceback=line.traceback,
        native=_listed(line.native_ops),
        native_kinds=len(line.native_ops),
        offloaded=_listed(line.offloaded_ops),
        offloaded_kinds=len(line.offloaded_ops),
    )


def _said(line: CheckLine) -> str:
    if line.conditions.get(EDITED):
        edited = f"{EDITED}: {error_types()['suite_edited'].says}"
        return f"{edited}. {line.error_message}" if line.error_message else edited
    return line.error_message or line.substitution_reason


def _listed(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{name} × {number}" for name, number in sorted(operators.items()))


def _facts(line: CheckLine) -> Iterator[str]:
    """Everything else that a line holds and that was measured."""
    shapes = [
        f"batch {line.batch}" if line.batch else "",
        f"length {line.sequence_length}" if line.sequence_length else "",
    ]
    latency = "" if line.latency_ms is None else f"{line.latency_ms:.2f} ms a forward pass"
    absolute = "" if line.max_abs_error is None else f"{line.max_abs_error:.2e}"
    for label, text in (
        ("stage", str(line.stage or "")),
        ("error type", line.error_type),
        ("substituted", line.substitution_reason),
        ("device", line.accelerator or ""),
        ("computed in", line.actual_dtype or ""),
        ("inputs", ", ".join(filter(None, shapes))),
        ("conditions", ", ".join(f"{name} {value}" for name, value in sorted(line.conditions.items()))),
        ("largest absolute error", absolute),
        ("latency", latency),
        ("the proof did not see", line.unseen),
        ("started", moment(line.started_at)),
        ("evidence", line.evidence_id),
    ):
        if text:
            yield f"{label}: {text}"
