"""Tables, figures and HTML pages about runs and genomes, and classes of the API's results.

    run_view.py       recorded data of a run               verdict.py    summary of a run in words
    table.py          tables for terminals and notebooks   recorded.py   data of one mechanism
    front_columns.py  columns of fronts and of runs        front.py      table of a front
    charts.py         what charts have in common           front_chart.py  chart of a front
    graph.py          genome's graph as picture and text   units.py      formats of numbers
    result.py         base class of API results            trackers.py   wandb, MLflow, TensorBoard
    page/             HTML page that shows runs

Each other module contains the result of one command, such as comparison.py for ``nas evaluate``.
The package exports nothing, so that imports of run_view and front do not load torch.
"""
