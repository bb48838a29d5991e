"""Tests of what suites, the reporter and the pool require of a backend, for its author to run.

    python -m pytest --pyargs hwcompat.generators.contract --backend mychip

It is in this package because a backend needs models; the contract of a vendor's file is `hardware.testing.contract`.
See `docs/ADDING_A_BACKEND.md`.
"""
