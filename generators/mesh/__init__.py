"""Models for a mesh: the tiny one that its check runs, and the figures of the real one that its plan is of."""
