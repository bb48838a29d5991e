"""Compare two runs, machines or folders: what changed, and why."""
