"""Evaluation: train a candidate and evaluate it, in this process or on workers.

Import from the module you need: this package imports nothing by itself.
"""
