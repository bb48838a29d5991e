"""Planted silent fallbacks, none of which may be reported as a pass."""
