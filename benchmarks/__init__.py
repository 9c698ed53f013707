"""Performance benchmarks: ``python -m benchmarks``; see ``__main__.py``."""
