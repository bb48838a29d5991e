"""How much of a library works on a target: every model type, counted once."""
