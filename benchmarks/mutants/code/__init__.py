"""Mutants of our own code: one small fault each, at seeded sites in every part that affects verdicts.

`python -m benchmarks.mutants.code draw` wrote `frozen.jsonl` once; `run` makes each fault in a copy of the tree and
runs the tests that cover it.
"""
