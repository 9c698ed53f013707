"""What every package uses: errors, configuration files, registries, objectives, statistics."""
