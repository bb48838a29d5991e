"""What changed between two runs, machines or folders, and by what."""
