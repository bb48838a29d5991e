"""The application: its public API and its command line."""
