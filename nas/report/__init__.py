"""Reports: what a person sees of runs and genomes.

    facts.py     a run as its table and its picture need it, read at one moment
    front.py     the front as a table and as JSON          runs.py        the list of runs
    plot.py      the front as a picture                    labels.py      where its labels go
    show.py      one genome: formula, graph, costs         drawing.py     its graph as text
    history.py   results and lineage of a run's genome     trials.py      trainings without a search
    mechanisms.py  the named mechanisms as a table
    costs.py     costs at several lengths                  cost_plot.py   those as a picture
    table.py     columns that fit a terminal               units.py       numbers for people
    text.py      what others wrote, made fit to print

Import from the module you need: facts, front, runs and plot load no torch.
"""
