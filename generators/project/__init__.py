"""The project file `hwcompat.toml`: what a repository wants tested, expects, and accepts for a while."""
