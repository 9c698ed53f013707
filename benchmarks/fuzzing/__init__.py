"""A fuzzer of all that is read from outside: files, databases, folders, command lines.

    values.py     hostile values, and mutations of documents, texts and bytes
    watching.py   what an input must not do: raise, take long, grow, write elsewhere, run anything
    subjects.py   kinds of input: how one is made of a valid example, and what is done with it
    records.py    those that are a run's record
    arguments.py  those that are a command line
    running.py    many inputs of all kinds, each from a seed of its own

An input is named by kind, seed and number, and can be made again by these alone.
"""
