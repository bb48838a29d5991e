"""What of a machine's hardware can't be used, and the command that changes that.

`diagnosis.py` tells it from an inventory, and `remedies.toml` knows what to do.
"""
