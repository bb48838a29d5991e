"""Read a report by its words: what it is probably about, who is at fault, and what fixed similar reports."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwcompat.hardware.values import data_file

from .finding import Confidence
from .report_facts import remedies_from_facts
from .report_words import HEADS, KnownReport, Ranked, known_reports, report_model

NO_FAILURE = "none"
MOST_REMEDIES = 3
_NO_FIX = "none_known"
_LONGEST = 20_000
"""Characters in which settings are looked for."""

_FIXES = Path(__file__).with_name("fix_kinds.toml")
_QUESTIONS = Path(__file__).with_name("questions.toml")
_PACKAGES = re.compile(
    r"\b(onnxruntime|openvino|tensorrt|transformers(?:\.js)?|diffusers|accelerate|bitsandbytes|xformers|flash[-_]attn|"
    r"triton|vllm|torchvision|torchaudio|torch|pytorch|tensorflow|keras|jaxlib|jax|llama[.-]cpp|ollama|comfyui|"
    r"ultralytics|coremltools|executorch|peft|deepspeed|lightning|paddlepaddle|mxnet)\b",
    re.I,
)

_SETTINGS = re.compile(
    r"(?<![\w-])(--[a-z][a-z0-9-]{2,40}|[A-Z][A-Z0-9]{2,20}(?:_[A-Z0-9]{1,20}){1,5}(?==)|"
    r"[a-z]{2,20}(?:_[a-z0-9]{1,20}){1,4}(?=\s?=\s?(?:True|False|None|[\"'\d])))"
)
"""Options, environment variables and named arguments."""
_MOST_SETTINGS = 3


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the words of a text say: labels with probabilities, how sure the first error type is, similar public
    reports, and what to do first. Of a text in another language too few words may be known (`is_known`)."""

    error_types: Ranked
    faults: Ranked
    severities: Ranked
    confidence: Confidence
    similar: tuple[KnownReport, ...]
    fixes: Ranked
    remedies: tuple[str, ...]
    is_known: bool

    @property
    def question(self) -> str:
        """What would decide whether the likeliest error type, of those that are failures, is right."""
        return str(questions()[next(name for name, _ in self.error_types.labels if name != NO_FAILURE)])


@functools.cache
def questions() -> Mapping[str, str]:
    """Return the question that decides, by error type."""
    found: Mapping[str, str] = data_file(_QUESTIONS)
    return found


@functools.cache
def fix_kinds() -> Mapping[str, Mapping[str, str]]:
    """Return what helps by the kind of fix: what to `do`, and other texts by error type."""
    found: Mapping[str, Mapping[str, str]] = data_file(_FIXES)
    return found


def read_report(text: str, patterns: Iterable[str] = ()) -> Reading:
    """Return the reading of a text. `patterns` are error types that patterns found in it."""
    patterns = list(patterns)
    model = report_model()
    vector = model.vector(text, patterns)
    ranked = {head: model.ranked(head, vector) for head in HEADS}
    probability = ranked["error_type"].probability
    sure, is_known = Confidence.LOW, bool(patterns) or model.knows(text)
    if probability >= model.border("medium") and is_known:
        sure = Confidence.HIGH if probability >= model.border("high") else Confidence.MEDIUM
    return Reading(
        error_types=ranked["error_type"],
        faults=ranked["fault"],
        severities=ranked["severity"],
        confidence=sure,
        similar=tuple(model.similar(vector, known_reports())),
        fixes=ranked["fix_kind"],
        remedies=first_remedies(text, ranked["fix_kind"], ranked["error_type"].first),
        is_known=is_known,
    )


def first_remedies(text: str, fixes: Ranked, error_type: str) -> tuple[str, ...]:
    """Return what to do first against an error type: what facts of the text call for, then the likeliest kinds of
    fix."""
    named = _PACKAGES.search(text)
    package = named[0] if named else "the library"
    kinds = [fix_kinds()[name] for name, _ in fixes.labels if name in fix_kinds() and name != _NO_FIX]
    settings = ", ".join(list(dict.fromkeys(_SETTINGS.findall(text[:_LONGEST])))[:_MOST_SETTINGS])
    names = {"package": package, "settings": settings or "the setting that the text names"}
    general = [texts.get(error_type, texts["do"]).format(**names) for texts in kinds]
    return tuple(dict.fromkeys([*remedies_from_facts(text, error_type), *general]))[:MOST_REMEDIES]


def reading_object(reading: Reading) -> dict[str, Any]:
    """Return the JSON object of a reading."""
    return {
        "error_types": [
            {"error_type": name, "probability": round(share, 3)} for name, share in reading.error_types.labels[:3]
        ],
        "fault": {"name": reading.faults.first, "probability": round(reading.faults.probability, 3)},
        "confidence": str(reading.confidence),
        "question": reading.question,
        "remedies": list(reading.remedies),
        "similar": [
            {"url": one.url, "error_type": one.error_type, "fix": one.fix, "likeness": round(one.likeness, 2)}
            for one in reading.similar
        ],
    }
