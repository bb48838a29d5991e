"""Render, write, verify and pack suites: test files that an engineer could have written."""
