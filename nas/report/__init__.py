"""Reports: tables, figures and pages of runs and genomes, and the results of the API.

    run_view.py       data that all displays of a run use  verdict.py    summary of a run in words
    columns.py        columns for tables, CSV, JSON, HTML  table.py      tables that fit a terminal
    front_columns.py  columns of the table of a front      front.py      table of a front
    charts.py         figures of costs and benchmarks      plot.py       figure of a front
    graph.py          figure of a genome's graph           drawing.py    genome's graph as text
    result.py         base classes of API results          units.py      formats of numbers
    page/             HTML page that shows runs            events.py     files for TensorBoard

Each other module contains the result of one command: trials.py contains the result of
``nas evaluate``, history.py a part of the result of ``nas show``. Import from the module you need:
run_view, front and plot load no torch.
"""
