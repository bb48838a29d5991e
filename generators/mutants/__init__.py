"""Breaks of the model under test, which every suite must notice, and the pytest plugin that makes them."""
