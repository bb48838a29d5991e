"""Loaded by every process that a test starts: leaves out scikit-learn, which NNCF brings along.

transformers imports it, two seconds of each process, for a way of decoding that no suite uses. Most users don't have
it.
"""

import sys

sys.modules["sklearn"] = None
