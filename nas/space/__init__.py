"""Search spaces, the validator, and random variation of genomes."""

from nas.space.space import SearchSpace, load_space

__all__ = ["SearchSpace", "load_space"]
