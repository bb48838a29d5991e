"""Suites on disk, and the environment in which they run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from generators.planned_suite import PlannedSuite
from hardware.testing.checkpoints import CHECKPOINTS_VARIABLE
from hardware.testing.devices import DEVICES_VARIABLE

from .files import State


@dataclass(frozen=True, kw_only=True)
class WrittenSuite:
    """A planned suite on disk. With the state `edited` the file holds a person's text, not the planned one."""

    planned: PlannedSuite
    path: Path
    state: State


def suite_environment(written: Sequence[WrittenSuite]) -> dict[str, str]:
    """What suites read beside their own text: device indices that were named, and where checkpoints lie."""
    devices = [str(one.planned.device) for one in written if one.planned.device.index is not None]
    folders = {str(one.planned.profile.folder.resolve()) for one in written if one.planned.profile.folder}
    before = os.environ.get(CHECKPOINTS_VARIABLE)
    return {
        DEVICES_VARIABLE: ",".join(dict.fromkeys(devices)),
        CHECKPOINTS_VARIABLE: os.pathsep.join([*sorted(folders), *([before] if before else [])]),
    }
