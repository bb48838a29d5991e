"""Trained files of public packages: what the product says of them, and what the runtimes do with natural inputs."""
