"""The Python API; the command line calls the same functions.

    runs.py         search, resume, confirm: functions that write a run
    comparing.py    evaluate, benchmark: train mechanisms without a search
    explaining.py   explain: what each part of a mechanism contributes
    genomes.py      cost, show, validate, build_attention, and lists of names
    exporting.py    export: a mechanism as a file or folder
    execution.py    common arguments of functions that train

Functions return frozen dataclasses. ``to_dict()`` gives the JSON that the command of the same name
prints, ``to_pandas()`` the rows of a table. A SOURCE is a string (see ``nas.store.sources``) or a
genome. ``nas.front`` needs no torch and is in nas.report.
"""
