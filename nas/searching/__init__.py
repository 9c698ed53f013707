"""Search: algorithms that propose attention mechanisms, and the loop that trains and records them.

    algorithm.py     protocol, context and registry   archive.py        results and estimates
    nsga2.py, ...    the algorithms                   quality_model.py  predicts metrics
    setup.py         objectives of a run              proposing.py      draw proposals
    loop.py          propose, train, record           driver.py         begin and resume a search
    listener.py      events of a search               confirm.py        train a front again
    references.py    limits of metrics                checking.py       faults of a run's folder
    front_file.py    front.json                       filtering.py      permitted and new genomes

Import from the module you need: this package imports nothing, so that reading a front stays quick.
"""
