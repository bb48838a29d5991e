"""Text of reasons, bases and faults. Verdicts have codes and parameters; only this module words them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwcompat.generators.compatibility.grade import level_rules
from hwcompat.generators.compatibility.verdict import Basis, Fault, Reason, Verdict
from hwcompat.hardware.evidence.error_types import facts_of_error_types
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.values import data_file

from .text import listed

_FILE = Path(__file__).with_name("reasons.toml")

BASIS_WORDS: Mapping[Basis, str] = {
    Basis.ASSUMED: "assumed for its family",
    Basis.PREDICTED: "predicted by rules",
    Basis.EXPIRED: "measured with other versions",
    Basis.IMPORTED: "published by a third party",
    Basis.MEASURED: "measured",
}

FAULT_WORDS: Mapping[Fault, str] = {
    Fault.MODEL: "the model: it also fails on the CPU",
    Fault.ROUTE: "the route to the device: export or conversion",
    Fault.DEVICE: "the device, its driver or its runtime",
    Fault.HARNESS: "the setup: a package, a download or a limit",
}

AT_FAULT = "model"
"""The word in place of the level of a cell whose model fails by its own code, on the CPU too."""

_TOLERANCE_STATED = "; the tolerance is "
"""A message with these words already has the figures."""

_OUTCOMES = {"timeout": "ran out of time", "out_of_memory": "ran out of memory"}
_NAMES_OF_ORIGINS = {"transformers": "upstream's tests"}


def reason_text(reason: Reason) -> str:
    """Return a reason as one line of text; one of an unknown code as its code with its parameters."""
    accelerator = reason.text("accelerator")
    return f"{accelerator}: {_text(reason)}" if accelerator else _text(reason)


def _text(reason: Reason) -> str:
    values = {name: _worded(value) for name, value in reason.items}
    if reason.code in _BY_CODE:
        return _BY_CODE[reason.code](reason)
    template: str | None = data_file(_FILE)["reason"].get(reason.code)
    if template is None:
        said = ", ".join(f"{name} {value}" for name, value in values.items())
        return one_line(f"{reason.code}: {said}" if said else reason.code)
    return template.format_map(_Missing(values))


class _Missing(dict[str, str]):
    """Parameters that an older file lacks become a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def _worded(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _check(reason: Reason) -> str:
    """Return a check's reason: `builds failed at run: no memory (error 0.2, tolerance 2e-05)`."""
    return f"{reason.text('check')} {check_words(reason)}"


def check_words(reason: Reason) -> str:
    """Return the outcome of a check without its name: `failed at run: no memory`."""
    values = reason.parameters
    outcome = str(values.get("outcome", ""))
    words = _OUTCOMES.get(outcome, outcome.replace("_", " "))
    words += f" at {values['stage']}" if "stage" in values else ""
    words += f": {values['message']}" if "message" in values else ""
    error, tolerance = values.get("error"), values.get("tolerance")
    is_stated = _TOLERANCE_STATED in str(values.get("message", ""))
    if error is not None and tolerance is not None and not is_stated:
        words += f" (error {_number(error)}, tolerance {_number(tolerance)})"
    return words


def _number(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, int | float) else str(value)


def _not_planned(reason: Reason) -> str:
    rules = level_rules()
    name = reason.text("check")
    why = rules.compares_reason if name == rules.compares else rules.proof_reason
    return f"{name} was not planned: {why}"


def _ran_elsewhere(reason: Reason) -> str:
    values = reason.parameters
    why = f": {values['message']}" if "message" in values else ""
    actual, asked_for = values.get("actual", "another target"), values.get("target", "the requested one")
    return f"it ran on {actual}, not on {asked_for}{why}"


def _other_tests(reason: Reason) -> str:
    counts = reason.text("counts").replace("not_run", "not run")
    why, moved = reason.text("not_run"), reason.text("moved")
    whose = _NAMES_OF_ORIGINS.get(reason.text("origin"), reason.text("origin"))
    return f"{whose}: {counts}{f' ({why})' if why else ''}{f'; with other versions: {moved}' if moved else ''}"


def _names(reason: Reason, name: str) -> tuple[str, ...]:
    value = reason.parameters.get(name, ())
    return value if isinstance(value, tuple) else (str(value),)


def _flaky(reason: Reason) -> str:
    runs = reason.parameters.get("runs", ())
    names = runs if isinstance(runs, tuple) else (str(runs),)
    shown = listed(names, 3)
    runs_needed = level_rules().clean_runs
    return (
        f"flaky and quarantined: it passed and failed in runs without a recorded difference ({shown}); "
        f"{runs_needed} clean runs in a row end the quarantine, or `hwcompat evidence clear-flaky`"
    )


def _later_checks(reason: Reason) -> str:
    names = _names(reason, "checks")
    return f"measured before checks were added: {listed(names, 3)}"


def _rests_on_float32(reason: Reason) -> str:
    level, basis = reason.text("level"), reason.text("basis")
    if level == "unknown":
        return "not measured in float32 on this target: a fault smaller than the tolerance isn't detected"
    return f"small faults of the model are left to float32 on this target ({level}, {basis})"


def _published(reason: Reason) -> str:
    """Return a published result: `works on Snapdragon X Elite CRD (qnn-dlc, w8a16; AI Hub 0.65.0)`."""
    how = ", ".join(filter(None, (reason.text("route"), reason.text("precision"))))
    where = "; ".join(filter(None, (how, reason.text("source"))))
    message = f": {reason.text('message')}" if reason.text("message") else ""
    return f"{reason.text('verb')} on {listed(_names(reason, 'devices'), 3)} ({where}){message}"


_BY_CODE: Mapping[str, Callable[[Reason], str]] = {
    "check": _check,
    "contradicted": lambda one: f"contradicts what others measured: {_published(one)}",
    "flaky": _flaky,
    "later_checks": _later_checks,
    "rests_on_float32": _rests_on_float32,
    "not_planned": _not_planned,
    "other_tests": _other_tests,
    "published": _published,
    "ran_elsewhere": _ran_elsewhere,
    "run_condition": lambda one: level_rules().condition_text(one.text("key"), one.text("value")),
    "suite_edited": lambda _one: str(facts_of_error_types()["suite_edited"]["says"]),
    "target_condition": lambda one: level_rules().stated.get(one.text("target"), one.text("target")),
    "weights": lambda one: level_rules().weights_conditions.get(one.text("weights"), one.text("weights")),
    "versions_moved": lambda one: f"measured with {'; '.join(_names(one, 'moved'))}",
}


def texts(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """Return each reason as text."""
    return tuple(reason_text(reason) for reason in reasons)


def texts_of(values: Iterable[Any]) -> tuple[str, ...]:
    """Return each reason of JSON as text; older files have texts."""
    return texts(Reason.from_json(value) for value in values)


def fault_of_model(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return why a model fails by its own code, as verdicts (JSON) of its row say: the CPU's first, then those of the
    strongest basis. Empty if it doesn't."""
    at_fault = [one for one in verdicts if one.get("fault") == Fault.MODEL and one.get("reasons")]
    at_fault.sort(key=lambda one: (one["cell"].split("/")[2:3] != ["cpu"], -Basis(one["basis"]).rank))
    return texts_of(at_fault[0]["reasons"])[0] if at_fault else ""


def folded(reasons: Sequence[Reason]) -> tuple[str, ...]:
    """Return reasons as text, with those that several checks share in one: `builds, backward failed: no memory`."""
    lines: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        accelerator = reason.text("accelerator")
        head = f"{accelerator}: " if accelerator else ""
        is_check = reason.code == "check"
        key = (head, check_words(reason)) if is_check else (reason_text(reason), "")
        lines.setdefault(key, []).extend([reason.text("check")] if is_check else [])
    return tuple(f"{head}{', '.join(names)} {rest}" if names else head for (head, rest), names in lines.items())


def explained(verdict: Verdict) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the reasons and conditions of a verdict as text, each fact once.

    Conditions that make a level `medium` become one sentence among the reasons, and are removed from the conditions.
    """
    limits = {_without_accelerator(one) for one in verdict.conditions}
    depends: dict[str, list[str]] = {}
    rest: list[Reason] = []
    for reason in verdict.reasons:
        if _without_accelerator(reason) in limits and verdict.rule_ids == ():
            depends.setdefault(reason.text("accelerator"), []).append(_text(reason))
        else:
            rest.append(reason)
    known = {text for parts in depends.values() for text in parts}
    sentences = [f"{f'{name}: ' if name else ''}{'; '.join(parts)}" for name, parts in depends.items()]
    conditions = tuple(text for text in texts(verdict.conditions) if text not in known)
    return (*sentences, *folded(rest)), conditions


def explained_dict(data: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the same of a verdict as JSON."""
    return explained(Verdict.from_dict({name: value for name, value in data.items() if name != "text"}))


def _without_accelerator(reason: Reason) -> Reason:
    return Reason(reason.code, tuple(item for item in reason.items if item[0] != "accelerator"))


def with_texts(value: Any) -> Any:
    """Return JSON values with a text beside each reason's code and parameters."""
    if isinstance(value, list):
        return [with_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"code", "parameters"} and isinstance(value["parameters"], Mapping):
        return {**value, "text": reason_text(Reason.from_json(value))}
    return {name: with_texts(one) for name, one in value.items()}
