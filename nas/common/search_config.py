"""The settings of a search. The command line reads the defaults from this light module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nas.common.errors import ConfigError

MAX_SEED: Final = 2**63
MAX_COUNT: Final = 1_000_000


@dataclass(frozen=True)
class SearchConfig:
    """The settings of a search.

    Attributes:
        algorithm: name of a search algorithm.
        population: number of proposals (mechanisms to train) in a generation.
        generations: number of generations, including the first; a resumed search may raise it.
        seed: seed from which the seeds of all trainings derive.
        repeats: number of trainings of each new mechanism, each with its own seed.
        lag: proposal t is computed from the results of proposals 0 to t - lag, so that no worker
            waits for the end of a generation; a few times the number of workers is sensible. None:
            the lag of the algorithm, see ``nas.searching.algorithm.Algorithm``.

    Raises:
        ConfigError: a number is out of range.
    """

    algorithm: str = "surrogate"
    population: int = 50
    generations: int = 50
    seed: int = 0
    repeats: int = 1
    lag: int | None = None

    def __post_init__(self) -> None:
        for name in ("population", "generations", "repeats"):
            check_count(name, getattr(self, name))
        if self.lag is not None:
            check_count("lag", self.lag)
        if not 0 <= self.seed < MAX_SEED:
            raise ConfigError(f"seed: found {self.seed}; expected a number from 0 to 2^63 - 1.")


def check_count(name: str, number: int) -> None:
    """Raise ConfigError unless a number is from 1 to ``MAX_COUNT``."""
    if not 1 <= number <= MAX_COUNT:
        raise ConfigError(f"{name}: found {number}; expected a number from 1 to {MAX_COUNT:,}.")
