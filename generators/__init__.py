"""Models, their compatibility with targets, and the suites that prove it."""
