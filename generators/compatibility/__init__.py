"""Compatibility of models and targets: predictions by rules, verdicts from evidence, and the matrix of both."""
