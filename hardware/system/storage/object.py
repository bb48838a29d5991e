"""Object stores behind a mount: S3, Azure and GCS through s3fs, goofys, mountpoint-s3, gcsfuse, blobfuse2, rclone."""

from __future__ import annotations

from ._mounted import MountedStorage


class ObjectStorage(MountedStorage):
    """Buckets and containers that look like a folder. They have no random writes and a latency of their own."""

    NAME = "object"
    KIND = "object"
    DEVICE_TYPE = "object"
