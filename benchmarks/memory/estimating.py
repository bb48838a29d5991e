"""Estimates for requests that were measured, and beside them what `accelerate estimate-memory` says."""

from __future__ import annotations

import functools
import json
from typing import Any

from generators.compatibility.memory.estimate import MemoryRequest
from generators.derivation.memory.estimate import Skeleton, skeleton_of

_OF_MODEL = ("config_class", "model_class", "config")


@functools.lru_cache(maxsize=1)
def _skeleton(model: str) -> Skeleton:
    return skeleton_of(*json.loads(model))


def estimated(point: dict[str, Any]) -> dict[str, Any]:
    """The parts of the estimate for a request that was measured."""
    skeleton = _skeleton(json.dumps([point[name] for name in _OF_MODEL]))
    request = MemoryRequest(
        mode=point["mode"], precision=point["precision"], batch=point["batch"], context=point["length"]
    )
    return skeleton.estimate(request, point["inputs"], [point["length"]] * point["batch"]).parts
