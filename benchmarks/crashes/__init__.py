"""Kills runs, fills disks and lets suites die, and looks whether anything that was kept is lost."""
