"""Estimate a model's memory without allocating it: operators run on tensors without data, and each storage is
counted from its allocation to its release."""
