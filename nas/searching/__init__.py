"""Search: algorithms that select the next mechanism, and the loop that trains and records.

    algorithm.py   contract, context and registry of algorithms; nsga2.py, surrogate.py, ...
    archive.py     results and estimates                  quality_model.py  a Gaussian process
    filtering.py   which attempts are legal and new       proposing.py      draw proposals
    loop.py        propose, train, record                 driver.py         begin and resume
    setup.py       settings and objectives                listener.py       events
    confirm.py     fresh seeds for members                references.py     references of suites
    checking.py    faults of a run's folder               front_file.py     front.json

Import from the module you need: this package imports nothing, so that reading a front stays quick.
"""
