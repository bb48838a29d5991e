"""Fast tests start no process: not even the one that tells the version of a container engine."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_container_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardware.detection.read_container_engines", lambda machine: ())
