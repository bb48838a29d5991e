"""Remedies: changes that may fix a failing cell, tried in child processes and judged as strictly as the cell."""
