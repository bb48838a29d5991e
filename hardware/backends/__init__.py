"""Targets that run models: one module for each. The listing of this folder is the list of targets."""
