"""The command line: one module for each group of commands. Only this package prints and ends the process."""
