"""Which operators of a model a target has: `coverage()`, over one table a target, each with its source and versions.

An operator that no table speaks of is unknown, never supported.
"""

from .operator_table import OperatorCoverage, OperatorTable, Section, coverage, known_tables, table_of

__all__ = ["OperatorCoverage", "OperatorTable", "Section", "coverage", "known_tables", "table_of"]
