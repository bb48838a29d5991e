"""Adversarial runs: a broken model whose reference, suite or runner is broken too, and fake devices.

`python -m benchmarks.mutants.deceits` plants each into real runs of the main job; no cell may be reported as working.
"""
