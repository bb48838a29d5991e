"""Forged and stale evidence: what a verdict must not become by changing a folder of evidence by hand.

`python -m benchmarks.mutants.forgeries` makes honest evidence that isn't green, changes it in every way that
`operators.py` names, and asks for the verdict again.
"""
