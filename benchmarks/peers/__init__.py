"""Multi-objective optimisers of other packages (peers) and ours on the same recorded trainings.

All have the same budget of trainings and are scored alike. Peers see a space as categorical choices
(``problem``) and learn costs with scores; our algorithms see genomes and know costs before a
training. ``comparing`` runs all of them.

NePS is excluded: version 0.17 requires networkx below 3 and an older jaxtyping than ours.
"""

from benchmarks.peers.comparing import peers

__all__ = ["peers"]
