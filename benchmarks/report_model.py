"""Train the model that ranks error types of reports, and score it: `python -m benchmarks.report_model train`.

Training needs scikit-learn, which OpenVINO's tools bring along. The model is trained on `train`, `tune` and `written`
of `test/fixtures/reports`. How sure it is follows from the answers to `train` and `tune` of models that haven't seen
the report's repository.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.failures import FOLDER, HELD_OUT, SEEN, read
from hardware.command_line import run_command_line
from reports import diagnose_text
from reports.diagnose_text import pattern_types
from reports.report_words import HEADS, KNOWN, MODEL, terms_of

REPORTS = FOLDER.parent / "reports"
SOURCES = ("train", "tune", "written")
_FOLDS = 5
_FEWEST = 2
"""How many reports a term must be in."""
_STRENGTH = 0.3
_PRECISION = {"high": 0.95, "medium": 0.6}
"""How many answers with this confidence must be right."""
_FEWEST_SURE = 30

Report = Mapping[str, Any]


def reports(name: str) -> list[Report]:
    """Return the entries of a file of reports."""
    return [json.loads(line) for line in (REPORTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def sources_hash() -> str:
    """Return a hash of what the model is trained on."""
    files = [
        *(REPORTS / f"{name}.jsonl" for name in SOURCES),
        *(FOLDER / f"{name}.jsonl" for name in (SEEN, HELD_OUT)),
    ]
    files.append(Path(diagnose_text.__file__).with_name("patterns.toml"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _training() -> list[Report]:
    """Return the reports, without those of threads that held-out failures are from, and the messages of other
    software among the seen failures."""
    kept_apart = {one.url.rstrip("/") for one in read(HELD_OUT) if one.url}
    messages = [
        {"text": one.printed, "error_type": one.label.error_type} for one in read(SEEN) if one.source != "run"
    ]
    every = [one for name in SOURCES for one in reports(name)]
    return [*(one for one in every if str(one.get("url", "")).rstrip("/") not in kept_apart), *messages]


class _Trained:
    """Linear models of all heads for the terms of some reports."""

    def __init__(self, counted: Sequence[Counter[str]], entries: Sequence[Report]) -> None:
        from sklearn.svm import LinearSVC

        held = Counter(term for one in counted for term in one)
        self.terms = sorted(term for term, number in held.items() if number >= _FEWEST)
        self.rarity = np.array([np.log((1 + len(entries)) / (1 + held[term])) + 1 for term in self.terms])
        self._places = {term: place for place, term in enumerate(self.terms)}
        matrix = self.matrix(counted)
        self.models = {}
        for head in HEADS:
            labeled = [place for place, one in enumerate(entries) if one.get(head)]
            labels = [str(entries[place][head]) for place in labeled]
            self.models[head] = LinearSVC(C=_STRENGTH, random_state=0).fit(matrix[labeled], labels)

    def matrix(self, counted: Sequence[Counter[str]]) -> Any:
        """Return the terms of reports as rows of a sparse matrix, each of length 1."""
        from scipy.sparse import csr_matrix
        from sklearn.preprocessing import normalize

        rows, columns, values = [], [], []
        for row, one in enumerate(counted):
            for term, number in one.items():
                if term in self._places:
                    rows.append(row)
                    columns.append(self._places[term])
                    values.append((1 + np.log(number)) * self.rarity[self._places[term]])
        return normalize(csr_matrix((values, (rows, columns)), shape=(len(counted), len(self.terms))))


def _left_out(counted: Sequence[Counter[str]], entries: Sequence[Report]) -> list[tuple[Any, list[int]]]:
    """Return models that haven't seen some repositories, each with the places of these reports."""
    folds: dict[int, list[int]] = {}
    for place, one in enumerate(entries):
        if one.get("repository") and not one["id"].startswith("more-"):
            number = int(hashlib.sha256(f"fold {one['repository'].lower()}".encode()).hexdigest(), 16) % _FOLDS
            folds.setdefault(number, []).append(place)
    found = []
    for places in folds.values():
        without = {entries[place]["repository"].lower() for place in places}
        kept = [place for place, one in enumerate(entries) if one.get("repository", "").lower() not in without]
        found.append((_Trained([counted[place] for place in kept], [entries[place] for place in kept]), places))
    return found


def _sharpness(scores: Any, classes: Sequence[str], labels: Sequence[str]) -> float:
    """Return the factor of scores with which softmax gives the labels the largest likelihood."""
    wanted = np.array([classes.index(label) for label in labels])

    def loss(factor: float) -> float:
        scaled = scores * factor
        top = scaled.max(1, keepdims=True)
        logs = scaled - top - np.log(np.exp(scaled - top).sum(1, keepdims=True))
        return float(-logs[np.arange(len(wanted)), wanted].mean())

    return min((float(factor) for factor in np.arange(0.5, 12, 0.25)), key=loss)


def _border(probabilities: Any, right: Any, precision: float) -> float:
    """Return the smallest probability from which on this share of the answers is right; 1 if there is none."""
    order = np.argsort(-probabilities)
    shares = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    good = [place for place in range(_FEWEST_SURE, len(order)) if shares[place] >= precision]
    return float(probabilities[order[good[-1]]]) if good else 1.0


def _text(words: Sequence[str]) -> Any:
    return np.frombuffer("\n".join(words).encode(), dtype=np.uint8)


def _arrays(trained: _Trained, left_out: Sequence[tuple[_Trained, list[int]]], counted: Any, entries: Any) -> Any:
    """Return what the model's file holds."""
    arrays: dict[str, Any] = {"terms": _text(trained.terms), "rarity": trained.rarity.astype(np.float16)}
    for head, model in trained.models.items():
        weights = model.coef_.T
        steps = np.abs(weights).max(0) / 127
        classes = [str(one) for one in model.classes_]
        scores, labels = [], []
        for other, places in left_out:
            places = [place for place in places if entries[place].get(head) in classes]
            given = other.models[head].decision_function(other.matrix([counted[place] for place in places]))
            known = {str(name): column for column, name in enumerate(other.models[head].classes_)}
            lowest = given.min(1)
            scores.append(np.stack([given[:, known[name]] if name in known else lowest for name in classes], 1))
            labels += [str(entries[place][head]) for place in places]
        every = np.concatenate(scores)
        sharpness = _sharpness(every, classes, labels)
        arrays |= {
            f"{head}_weights": np.round(weights / steps).astype(np.int8),
            f"{head}_steps": steps.astype(np.float32),
            f"{head}_bias": model.intercept_.astype(np.float32),
            f"{head}_sharpness": np.float32(sharpness),
            f"{head}_labels": _text(classes),
        }
        shares = np.exp(every * sharpness)
        shares /= shares.sum(1, keepdims=True)
        right = np.array([classes[place] for place in shares.argmax(1)]) == np.array(labels)
        click.echo(
            f"{head}: {right.mean():.3f} of {len(right)} reports of repositories that weren't seen, {sharpness=}"
        )
        if head == "error_type":
            for name, precision in _PRECISION.items():
                border = _border(shares.max(1), right, precision)
                arrays[f"border_{name}"] = np.float32(border)
                click.echo(f"  {name} from {border:.2f} on: {(shares.max(1) >= border).mean():.3f} of the answers")
    return arrays


@click.group()
def main() -> None:
    """Train or score the model that ranks error types of reports."""


@main.command()
def train() -> None:
    """Write the model and the known reports."""
    entries = _training()
    counted = [terms_of(one["text"], pattern_types(one["text"])) for one in entries]
    trained = _Trained(counted, entries)
    arrays = _arrays(trained, _left_out(counted, entries), counted, entries)
    known = [
        place for place, one in enumerate(entries) if one.get("url") and one["error_type"] not in ("none", "unknown")
    ]
    matrix = trained.matrix([counted[place] for place in known])
    arrays |= {
        "known_starts": matrix.indptr.astype(np.int32),
        "known_terms": matrix.indices.astype(np.int32),
        "known_values": matrix.data.astype(np.float16),
        "made_from": _text([sources_hash()]),
    }
    np.savez_compressed(MODEL, **arrays)
    lines = [{name: entries[place][name] for name in ("url", "error_type", "fix")} for place in known]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    KNOWN.write_bytes(gzip.compress(text.encode(), mtime=0))
    for file in (MODEL, KNOWN):
        click.echo(f"{Path(file).name}: {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    sys.exit(run_command_line(main, sys.argv[1:], program="python -m benchmarks.report_model"))
