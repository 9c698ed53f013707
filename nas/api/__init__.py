"""The Python API; the command line calls the same functions.

    runs.py         search, resume, confirm: functions that write a run
    comparing.py    evaluate, benchmark: train mechanisms without a search
    explaining.py   explain: measure what each part of a mechanism contributes
    genomes.py      cost, show, validate, build_attention, and lists of names
    exporting.py    export: write a mechanism as a file or folder
    execution.py    arguments that functions which train have in common

Functions return immutable dataclasses. ``to_dict()`` returns the JSON that the command of the same
name prints; ``to_pandas()`` returns the rows of a table. The argument ``source`` is a genome, or a
string or path that names one (see ``nas.store.sources``). ``nas.front`` is in nas.report.
"""
