"""Middle floor: what is known of models, what is compatible with what, and the suites that prove it."""
