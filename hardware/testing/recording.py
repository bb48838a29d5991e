"""Whether a recorder is at work in this process: without one, nothing tells a run elsewhere from a pass."""

active = False

keeps_references = True
"""Whether references that are computed in this process may be kept for later runs. Not in plain pytest, where a
conftest.py or a plugin may have changed modules in memory, and not beside a suite that was edited."""
