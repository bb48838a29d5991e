"""Ask the classifier, and go on by the name alone if its module is missing or fails."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

from hwcompat.hardware.command_line import note
from hwcompat.hardware.errors import HwCompatError, ModelError, did_you_mean, echo
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.safe_read import is_folder

from .architectures import architecture_data
from .classification import SOURCES, TASKS, Classification, classify_type, kind_of, of_task, spelling
from .model_libraries import is_known, known_types
from .model_names import known_words, last_resort, type_in_name

_LONGEST = 200


def classify(name: str, revision: str = "") -> Classification:
    """Classify by `classifier.classify`; without that module, by the words of the name alone.

    Raises the errors of `classifier.classify`; `ModelError` if the name doesn't say enough.
    """
    if failure := classifier_failure():
        return _by_name(name, failure)
    from .classifier import classify as found

    return found(name, revision)


@functools.cache
def classifier_failure() -> str:
    """Return why the classifier's module can't be imported, or an empty text. The first call reports it."""
    try:
        from . import classifier as classifier
    except Exception as error:  # its file is missing or damaged: the command goes on
        failure = one_line(f"{type(error).__name__}: {error}", longest=_LONGEST)
        note(f"model classification failed: {failure}; using the name alone")
        return failure
    return ""


def _by_name(name: str, failure: str) -> Classification:
    """Classify by the name: a type, a kind of its own, a type within the name, or a word that tells the task."""
    source = "name (the classifier failed)"
    same = next((one for one in known_types() if spelling(one) == spelling(name)), None)
    if same:
        return replace(classify_type(same), source=source)
    if kind := kind_of(name):
        return of_task(name, TASKS[kind], SOURCES[kind])
    meaning = None if is_folder(Path(os.path.expanduser(name))) else type_in_name(name, known_types(), known_words())
    if meaning is None or not is_known(meaning.model_type):
        raise ModelError(
            f"{echo(name)} can't be classified",
            why=f"the classifier failed: {failure}",
            fix=did_you_mean(name, known_types()) or "Name a model type, or install hwcompat again.",
        )
    return replace(classify_type(meaning.model_type), model=name, confidence="low", source=source)


def classify_or_guess(name: str) -> tuple[Classification | None, tuple[str, ...]]:
    """Return the classification by `classify`, else by words in the name, else None, with the reasons. Never
    raise."""
    try:
        return classify(name), ()
    except HwCompatError as error:
        task = last_resort(name, architecture_data()["last_resort"])
        if task is None:
            return None, (str(error), "the name has no known word")
        guess = of_task(name, task, "words in the name")
        return guess, (str(error), f"guessed {guess.architecture} from words in the name")
