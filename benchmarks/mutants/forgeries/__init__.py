"""Tampered and stale evidence, which must not change a verdict.

`python -m benchmarks.mutants.forgeries` makes honest evidence of failing cells, changes it in every way of
`operators.py`, and judges it again.
"""
