"""Storage: disks of this machine, and mounts of network, parallel and object storage."""

from .storage_device import StorageBackend, StorageDeviceInfo
from .storage_registry import get_storage_backend, read_storage

__all__ = ["StorageBackend", "StorageDeviceInfo", "get_storage_backend", "read_storage"]
