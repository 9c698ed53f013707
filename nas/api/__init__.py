"""What a program calls; the command line calls the same functions.

    training.py       search, resume, evaluate and confirm: the functions that train
    benchmarking.py   benchmark: mechanisms under several tasks at once
    explaining.py     explain: what each part of a mechanism is worth
    tables.py         tabulate: a whole space trained, as a table
    genomes.py        of genomes: costs, all that is known, validity, a module, a file to take away

They answer with the plain data that the commands of the same names print as JSON. A SOURCE is a
string (see ``nas.store.sources``) or a genome. ``nas.front`` needs no torch and is in nas.report.
"""
