"""Tabular benchmarks: recorded trainings of all mechanisms of a space, for searches in seconds.

table.py      a table of mechanisms and their trainings, read and written as one file
ranking.py    rank correlation between short and long trainings
evaluator.py  an evaluator that returns the trainings of a table
"""

from nas.searching.tabular.table import Table, load_table, tables

__all__ = ["Table", "load_table", "tables"]
