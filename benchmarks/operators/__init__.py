"""Makes the tables of operators in `generators/compatibility/operators`, each from a source that it names."""
