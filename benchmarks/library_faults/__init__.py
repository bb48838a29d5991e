"""Faults that were reported in libraries of models, made again in the installed transformers (README.md)."""
