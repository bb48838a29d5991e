"""Parallel filesystems: Lustre, GPFS, BeeGFS, CephFS and the others that `filesystems.toml` names."""

from __future__ import annotations

from ._mounted import MountedStorage


class ParallelStorage(MountedStorage):
    """What is mounted from many servers that act as one."""

    NAME = "parallel"
    KIND = "parallel"
