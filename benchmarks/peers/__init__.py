"""Multi-objective optimisers of other packages (peers) and ours on the same recorded trainings.

All have the same budget of trainings and are scored alike. Peers see a space as categorical choices
(problem.py) and receive costs with scores. Our algorithms see genomes and know costs before a
training, as does the Gaussian process of gp_peer.py. comparing.py runs all of them.

NePS is excluded: version 0.17 requires networkx below 3 and an older jaxtyping than ours.
"""
