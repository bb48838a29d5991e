"""Models, tokenizers and other resources that are loaded once, shared by threads, and kept below a budget of memory.

`pool.py` is what callers use, over `load_resource.py` (one load from admission to its end) and `pool_state.py` (what
is there, who uses it, what goes). `account.py` decides what fits, `resource_sizes.py` and `device_memory.py` measure,
`pool_models.py` brings models onto a device. Nothing is imported or started for it before a resource is asked for.
"""

from __future__ import annotations

from .pool import CallOutcome, Lease, ResourcePool, get_global_resource_pool
from .pool_state import Incident

__all__ = ["CallOutcome", "Incident", "Lease", "ResourcePool", "get_global_resource_pool"]
