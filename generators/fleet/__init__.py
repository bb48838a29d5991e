"""Runs suites on other machines, and takes home what they saw: the same suites, the same evidence, the same levels.

Each of its ways (`ray_*.py` on a cluster, `lab_*.py` over ssh) packs a bundle, has it run where the targets are, and
merges the evidence. Verdicts are given here.
"""
