"""Foundations of all other packages: errors, configuration files, registries, statistics."""
