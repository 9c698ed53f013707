"""Tabular benchmarks: a space trained whole, so that a search is replayed in seconds.

table.py      what was trained, and what came of it; read and written as one file
making.py     enumerate a space, train all of it, go on where it was stopped
ranking.py    how well short trainings rank mechanisms, beside long ones
evaluator.py  an evaluator that looks results up, so that the real search runs on a table
"""

from nas.searching.tabular.table import Table, load_table, tables

__all__ = ["Table", "load_table", "tables"]
