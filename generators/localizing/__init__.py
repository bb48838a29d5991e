"""Finds the first wrong module or node of a cell, in a child process: a device that crashes takes nothing along."""
