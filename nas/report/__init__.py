"""Reports: tables, figures and pages of runs and genomes, and the results of the API.

    run_view.py       the data of all displays of a run    verdict.py    a run in words
    columns.py        a column, in every output            table.py      tables that fit a terminal
    front_columns.py  the columns of a front               front.py      the front of a run
    charts.py         pictures: costs, benchmarks          plot.py       pictures: a front
    graph.py          a genome's graph                     drawing.py    the graph as text
    result.py         bases of results                     units.py      numbers for people
    page/             runs as one HTML file                events.py     TensorBoard

The other modules have the names of their commands. Import from the module you need: run_view,
front, runs and plot load no torch.
"""
