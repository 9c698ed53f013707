"""The Python API; the command line calls the same functions.

    runs.py         search, resume, and confirm (train members of the front with fresh seeds)
    comparing.py    evaluate: train mechanisms without a search, and compare them
    explaining.py   explain: measure what each part of a mechanism contributes
    genomes.py      cost, show, validate, build_attention, and names of all mechanisms and tasks
    exporting.py    export: write a mechanism as a file
    execution.py    the arguments shared by all functions that train

Functions return immutable dataclasses. ``to_dict()`` returns the JSON that the command of the same
name prints; ``table`` and ``trainings`` are DataFrames. An argument ``source`` takes a genome, or
a string or path that names a genome (see ``nas.store.sources``). ``nas.front`` is in nas.report.
"""
