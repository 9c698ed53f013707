"""Search: which mechanism to train next, and the loop that does so and writes it down.

    algorithm.py  the contract of a search algorithm, and the algorithms by name
    nsga2.py      NSGA-II by pymoo          random_search.py  the baseline that learns nothing
    regularized_evolution.py
    proposing.py  draw and judge attempts; apart from training, for ask-and-tell
    setup.py      settings, frozen copies   loop.py           propose, train, record
    driver.py     begin and resume a run    listener.py       what a display is told
    front_file.py front.json

Import from the module you need: this package imports nothing by itself, so that reading a front
stays quick.
"""
