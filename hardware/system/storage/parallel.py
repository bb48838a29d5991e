"""Parallel filesystems, as `filesystems.toml` names them."""

from ._mounted import MountedStorage


class ParallelStorage(MountedStorage):
    """What is mounted from many servers that act as one."""

    NAME = "parallel"
    KIND = "parallel"
