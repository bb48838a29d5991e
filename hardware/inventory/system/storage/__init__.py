"""Storage: disks of this machine, and what is mounted from a network, a parallel filesystem or an object store."""

from .storage_device import StorageBackend, StorageDeviceInfo
from .storage_registry import get_storage_backend, read_storage

__all__ = ["StorageBackend", "StorageDeviceInfo", "get_storage_backend", "read_storage"]
