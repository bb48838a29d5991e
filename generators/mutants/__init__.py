"""Breaks of the model under test, which every suite must notice, and the pytest plug-in that makes them."""
