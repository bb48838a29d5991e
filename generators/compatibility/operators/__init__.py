"""Which operators of a model a target has: `coverage()`, from one table for each target, with source and versions.

An operator that no table lists is unknown, never supported.
"""

from .operator_table import OperatorCoverage, OperatorTable, Section, coverage, known_tables, registration, table_of

__all__ = ["OperatorCoverage", "OperatorTable", "Section", "coverage", "known_tables", "registration", "table_of"]
