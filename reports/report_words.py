"""Rank the error types of a report by its words: linear models over words, pairs of words and what patterns found.

`report_model.npz` holds the weights, which `python -m benchmarks.report_model train` makes from public reports and
texts that were written for it (`test/fixtures/reports`). NumPy alone is needed to use them.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwcompat.hardware.plain_text import ends_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

MODEL = Path(__file__).with_name("report_model.npz")
KNOWN = Path(__file__).with_name("known_reports.jsonl.gz")
HEADS = ("error_type", "fault", "severity", "fix_kind")

_LONGEST = 20_000
_ADDRESS = re.compile(r"0x[0-9a-f]+|https?://\S+", re.I)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[a-z]+|[#?!]")
_MOST_SIMILAR = 3
_FEWEST_WORDS = 3
_ALIKE = 0.25
"""The smallest cosine of two reports that are called similar."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Labels with their probabilities, the likeliest first."""

    labels: tuple[tuple[str, float], ...]

    @property
    def first(self) -> str:
        """The likeliest label."""
        return self.labels[0][0]

    @property
    def probability(self) -> float:
        """The probability of the likeliest label."""
        return self.labels[0][1]


@dataclass(frozen=True, kw_only=True)
class KnownReport:
    """A public report like the text: where it is, what it was, and what fixed it."""

    url: str
    error_type: str
    fix: str
    likeness: float


def terms_of(text: str, patterns: Iterable[str] = ()) -> Counter[str]:
    """Return the words of a text, pairs of neighbors, and `patterns`, the error types that patterns found, by count.

    Numbers are `#`, names in CamelCase are split.
    """
    plain = _ADDRESS.sub(" ", ends_of(text, _LONGEST))
    plain = _NUMBER.sub(" # ", _CAMEL.sub(" ", plain)).lower().replace("_", " ")
    words = _WORD.findall(plain)
    found = Counter(words)
    found.update(f"{one} {other}" for one, other in itertools.pairwise(words))
    found.update(f"={name}" for name in patterns)
    return found


class ReportModel:
    """The linear models of a file. Each has a label's weight for each term."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        listed = bytes(arrays["terms"]).decode().split("\n")
        self._places = {term: place for place, term in enumerate(listed)}

    def vector(self, text: str, patterns: Iterable[str] = ()) -> tuple[Array, Array]:
        """Return the places of the known terms of a text and their weights, whose squares add up to 1."""
        import numpy as np

        counted = terms_of(text, patterns)
        known = sorted((self._places[term], count) for term, count in counted.items() if term in self._places)
        places = np.array([place for place, _ in known], dtype=np.int64)
        values = np.array([1 + math.log(count) for _, count in known]) * self._arrays["rarity"][places]
        return places, values / (np.linalg.norm(values) or 1.0)

    def knows(self, text: str) -> bool:
        """Return whether enough words of a text are known to say anything about it."""
        words = {term for term in terms_of(text) if term.isalpha()}
        return sum(term in self._places for term in words) >= _FEWEST_WORDS

    def ranked(self, head: str, vector: tuple[Array, Array]) -> Ranked:
        """Return all labels of a head with probabilities."""
        import numpy as np

        places, values = vector
        weights = self._arrays[f"{head}_weights"][places].astype(np.float32) * self._arrays[f"{head}_steps"]
        scores = (values @ weights + self._arrays[f"{head}_bias"]) * float(self._arrays[f"{head}_sharpness"])
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        names = bytes(self._arrays[f"{head}_labels"]).decode().split("\n")
        order = np.argsort(-shares, kind="stable")
        return Ranked(labels=tuple((names[place], float(shares[place])) for place in order))

    def border(self, name: str) -> float:
        """Return the smallest probability of answers with `high` or `medium` confidence."""
        return float(self._arrays[f"border_{name}"])

    def similar(self, vector: tuple[Array, Array], known: Sequence[Mapping[str, Any]]) -> list[KnownReport]:
        """Return the nearest of the `known` reports that are alike enough, the nearest first."""
        import numpy as np

        places, values = vector
        dense = np.zeros(len(self._places), dtype=np.float32)
        dense[places] = values
        steps = self._arrays["known_starts"]
        products = dense[self._arrays["known_terms"]] * self._arrays["known_values"]
        likeness = np.add.reduceat(np.append(products, 0.0), steps[:-1]) * (steps[1:] > steps[:-1])
        nearest = np.argsort(-likeness, kind="stable")[:_MOST_SIMILAR]
        return [
            KnownReport(**known[place], likeness=float(likeness[place]))
            for place in nearest.tolist()
            if likeness[place] >= _ALIKE
        ]


@functools.cache
def report_model() -> ReportModel:
    """Return the model that is shipped."""
    import numpy as np

    with np.load(MODEL, allow_pickle=False) as file:
        return ReportModel({name: file[name] for name in file.files})


@functools.cache
def known_reports() -> tuple[dict[str, Any], ...]:
    """Return the public reports that the model knows: `url`, `error_type` and `fix`."""
    with gzip.open(KNOWN, "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)
