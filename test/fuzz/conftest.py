"""What the tests of this folder are given; `fuzzing.py` says how many inputs they try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fuzzing import VARIABLE, Fuzz, share_of, usual_of
from watched import Sentinel


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Any:
    """The inputs of a test; their number is reported at the end of the run, and the seed of the one that failed."""
    chosen = sum(usual_of(item) for item in request.session.items)
    number = share_of(usual_of(request.node), chosen, os.environ.get(VARIABLE))
    sentinel = request.getfixturevalue("sentinel").path if "sentinel" in request.fixturenames else "/nowhere"
    made = Fuzz(number, request.node.nodeid, sentinel)
    yield made
    print(f"the last input was Hostile({made.seed!r})")
    request.node.user_properties.append(("fuzzed inputs", made.tried))


@pytest.fixture
def sentinel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A file that code from an input would make; it must not be there when the test is over."""
    made = Sentinel(tmp_path_factory.mktemp("sentinel"))
    yield made
    made.check()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to work in, with room around it that must stay as it is."""
    found = tmp_path / "outer" / "inner"
    found.mkdir(parents=True)
    return found
