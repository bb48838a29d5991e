"""Findings with causes and remedies from evidence, and reports of them."""
