"""Search: algorithms that propose mechanisms, and the loop that trains and records them.

    algorithm.py     protocol, context and registry   archive.py        results and estimates
    nsga2.py, ...    the algorithms                   quality_model.py  Gaussian process of scores
    setup.py         objectives and proposer          proposing.py      draw proposals
    loop.py          propose, train, record           driver.py         begin and resume a search
    listener.py      events of a search               confirm.py        train a front again
    references.py    reference scores of suites       checking.py       faults of a run's folder
    front_file.py    front.json                       filtering.py      legal and new genomes

Import from the module you need: this package imports nothing, so that reading a front stays quick.
"""
