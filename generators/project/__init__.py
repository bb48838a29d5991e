"""The project file `hwcompat.toml`: what a repository tests, expects, and accepts temporarily."""
