"""Tables: recorded trainings of all mechanisms of a small space, on which a search takes seconds.

The spaces are in benchmarks/spaces. ``python -m benchmarks.tabulate`` makes a table.
"""
