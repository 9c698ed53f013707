"""Reports: what a person sees of runs and genomes.

    facts.py     a run as its table and its picture need it, read at one moment
    front.py     the front as a table and as JSON          plot.py        the front as a picture
    runs.py      the list of runs                          mechanisms.py  the named mechanisms
    show.py      one genome: formula, graph, costs         drawing.py     its graph as text
    history.py   results and lineage of a run's genome     trials.py      trainings without a search
    costs.py     costs at several lengths                  cost_plot.py   those as a picture
    table.py     columns that fit a terminal               figure.py      what pictures share
    text.py      what others wrote, made fit to print      units.py       numbers for people
    page/        runs as one HTML file

Import from the module you need: facts, front, runs and plot load no torch.
"""
