"""Make the tables of operators in `generators/compatibility/operators`, each with its source."""
