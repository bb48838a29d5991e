"""Mutants: ten breaks of the side under test that every generated suite must catch, and clean runs that it must pass.

`python -m benchmarks.mutants` prints the table; `pytest -p benchmarks.mutants.plugin` breaks one suite by hand.
"""
