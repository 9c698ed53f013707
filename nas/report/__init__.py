"""Tables, figures and HTML pages about runs and genomes, and classes of the API's results.

A module such as comparison.py contains the result of one command. The package exports nothing, so
that imports of run_view and front do not load torch.
"""
