"""Suites of single operators: which calls they make, how they are rendered, and what their results say."""
