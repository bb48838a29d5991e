"""Importers of published results, one file for each format: `IMPORTER` of `hardware/evidence/published.py`."""
