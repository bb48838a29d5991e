"""Which device of a target's kind a suite uses: an index the user named travels beside the cell, not in it."""

from __future__ import annotations

import os

from ..target import Target

DEVICES_VARIABLE = "HWCOMPAT_DEVICES"


def requested_device(target: Target) -> Target:
    """`target` with the index that `HWCOMPAT_DEVICES` (`cuda:1,openvino:GPU.1`) names for its kind."""
    for text in filter(None, os.environ.get(DEVICES_VARIABLE, "").split(",")):
        named = Target.parse(text.strip())
        if named.kind == target.kind:
            return named
    return target
