"""Branches of the modeling code that suites enter, and settings of tiny models that enter more of them."""
