"""Repros: scripts that show the failure of a cell without this product, captured in a child process and run."""
