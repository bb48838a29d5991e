"""Resource pool: models, tokenizers and other resources, loaded once, shared by threads, within a memory budget.

`pool.py` is the interface; `load_resource.py` runs one load, `pool_state.py` holds the tables, `account.py` decides
what fits, `resource_sizes.py` and `device_memory.py` measure, `pool_models.py` loads models onto a device. Importing
the package has no side effects.
"""

from __future__ import annotations

from .pool import CallOutcome, Lease, ResourcePool, get_global_resource_pool
from .pool_state import Incident

__all__ = ["CallOutcome", "Incident", "Lease", "ResourcePool", "get_global_resource_pool"]
