"""From a failing cell to one script that shows the failure without us: captured in a child, written down, and run."""
