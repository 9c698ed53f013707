"""Other people's multi-objective optimisers on the space attention_bench, beside our own.

All of them pay for the same trainings and are judged alike. Those that come from elsewhere see the
space as one flat choice of categories (``problem``); ours see genomes. ``comparing`` runs them.

Left out is NePS: version 0.17 asks for networkx below 3 and an older jaxtyping than ours.
"""

from benchmarks.peers.comparing import peers

__all__ = ["peers"]
