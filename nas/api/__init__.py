"""The Python API; the command line calls the same functions.

Functions return immutable dataclasses. ``to_dict()`` returns the JSON that the command of the same
name prints; ``table`` and ``trainings`` are DataFrames. An argument ``source`` takes a genome, or
a string or path that names a genome (see ``nas.store.sources``). ``nas.front`` is in nas.report.
"""
