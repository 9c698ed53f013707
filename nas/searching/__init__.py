"""Search: which mechanism to train next, and the loop that does so and writes it down.

    novelty.py    judge an attempt: new, replayed or rejected; fill a generation with new ones
    algorithm.py  the contract of a search algorithm, and the algorithms by name
    nsga2.py      NSGA-II by pymoo          random_search.py  the baseline that learns nothing
    aging.py      regularised evolution     setup.py          settings and frozen copies
    standing.py   front and counts so far   listener.py       what a display is told
    loop.py       generation by generation  driver.py         begin and resume a run
    outcome.py    how a process leaves it   front_file.py     front.json, `nas front --json`

Import from the module you need: this package imports nothing by itself, so that reading a front
stays quick.
"""
