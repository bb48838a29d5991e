"""Mutants of our own code: one small fault each, at sites drawn by seed in every part that a verdict rests on.

`python -m benchmarks.mutants.code draw` wrote `frozen.jsonl`, once; `run` makes each fault in a copy of the tree and
asks the tests that come by it.
"""
