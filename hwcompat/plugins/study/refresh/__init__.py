"""Refresh: find expired cells in a folder of evidence, and plan to run them again on this machine."""
