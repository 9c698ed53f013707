"""A fuzzer of all external input of `nas`: files, databases, folders, command lines.

    values.py     hostile values, and mutations of documents, texts and bytes
    watching.py   limits: unexpected errors, time, memory, writes elsewhere, executed programs
    subjects.py   inputs that are files: mutations of valid examples, and their readers
    records.py    inputs that are the record of a run
    arguments.py  inputs that are command lines
    folders.py    inputs that are run folders, read by commands
    running.py    many inputs of all kinds, each with its own seed

The kind, the seed and the number of an input reproduce it.
"""
