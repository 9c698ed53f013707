"""The performance harness: ``python -m tests.benchmarks [validator] [trainings]``."""
