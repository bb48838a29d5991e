"""Mutants: ten breaks that the suites of every kind of model must catch, and clean runs that they must pass.

`python -m benchmarks.mutants` prints the table; `pytest -p generators.mutants.mutation_plugin` breaks one suite by
hand.
"""
