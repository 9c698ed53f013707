"""The performance harness: ``python -m tests.benchmarks``; see ``__main__.py``."""
