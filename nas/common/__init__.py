"""Shared foundations: errors, configuration files, registries, objectives, statistics."""
