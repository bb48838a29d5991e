"""Object stores that are mounted, as `filesystems.toml` names them."""

from ._mounted import MountedStorage


class ObjectStorage(MountedStorage):
    """Buckets and containers that look like a folder. They have no random writes and a latency of their own."""

    NAME = "object"
    KIND = "object"
    DEVICE_TYPE = "object"
