"""Models, tokenizers and other resources that are loaded once, shared by threads, and kept below a budget of memory.

`pool.py` is what callers use, over `loading.py` (one load from admission to its end), `leaving.py` (what goes, and
whether it went) and `state.py` (what is there). `account.py` decides what fits, `waiting.py` whether a wait can end,
`sizes.py` and `memory.py` measure, `placing.py` and `library.py` bring models onto a device, `snapshot.py` tells.
Nothing is imported or started for it before a resource is asked for.
"""

from __future__ import annotations

from .calls import CallOutcome
from .incident import Incident
from .lease import Lease
from .pool import ResourcePool, get_global_resource_pool

__all__ = ["CallOutcome", "Incident", "Lease", "ResourcePool", "get_global_resource_pool"]
