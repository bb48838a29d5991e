"""Deceits: a broken model whose reference, suite or runner is broken along with it, and devices that are made up.

`python -m benchmarks.mutants.deceits` plants each into real runs of the main job; no cell may come out as working.
"""
