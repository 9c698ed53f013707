"""Simulate ``nas judge``: the rate of false claims, and the number of pairs until a true claim.

In a session, fifty edits of a mechanism are judged one after another. Noise is normal, or drawn
from the recorded trainings of a table: the differences between trainings of one mechanism with
different seeds. This noise differs between mechanisms, so its distribution has long tails.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.rows import Mean, Row
from benchmarks.tabular.table import load_table
from nas.api.judging import PLACES
from nas.common.sequential import evidence, needed

if TYPE_CHECKING:
    Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Noise = Callable[[tuple[int, ...]], Array]

SESSIONS: Final = 2000
SINGLE: Final = 20_000  # judgements without a record
PAIRS: Final = 40
TABLES: Final = ("attention-bench", "attention-bench-quick", "recall-bench")
EFFECTS: Final = (1.0, 2.0, 3.0)  # in standard deviations of the noise of one training


def judging(options: argparse.Namespace) -> Iterator[Row]:
    """Yield shares of false claims, and the number of pairs until a true claim."""
    rng = np.random.default_rng(options.seed)
    noises = {"normal": rng.standard_normal} | {name: recorded(name, rng) for name in TABLES}
    for name, noise in noises.items():
        sessions = np.array([_claims(noise, PLACES, PLACES).any() for _ in range(SESSIONS)])
        row: dict[str, object] = {
            "noise": name,
            "sessions with a false claim, %": _share(sessions),
            "judgements with a false claim, %": _share(_claims(noise, SINGLE, 1)),
        }
        for effect in EFFECTS:
            is_claimed = evidence(_gains(noise, SESSIONS) + effect) >= needed(PLACES)
            share = float(is_claimed.any(axis=1).mean())
            pairs = np.where(is_claimed.any(axis=1), 1 + is_claimed.argmax(axis=1), np.inf)
            median = float(np.quantile(pairs, 0.5, method="higher"))
            row[f"{effect:g} deviations, claimed of {PAIRS}"] = f"{share:.0%}, median {median:g}"
        yield row


def recorded(table: str, rng: np.random.Generator) -> Noise:
    """Return a function that draws noise from a table, with a standard deviation of 1."""
    loaded = load_table(table)
    scores = loaded.scores(loaded.metrics[0])
    residuals = (scores - scores.mean(axis=1, keepdims=True)).ravel()
    residuals = residuals[np.isfinite(residuals)] / np.nanstd(residuals)
    return lambda shape: rng.choice(residuals, shape)


def _gains(noise: Noise, edits: int) -> Array:
    """Return gains of edits without an effect, (edits, pairs)."""
    gains: Array = noise((edits, PAIRS)) - noise((edits, PAIRS))
    return gains


def _claims(noise: Noise, edits: int, places: int) -> Array:
    """Return which edits without an effect are claimed to have one, (edits,).

    Args:
        places: number of mechanisms over which the probability of false claims is bounded.
    """
    gains = _gains(noise, edits)
    is_claimed: Array = (evidence(np.stack([gains, -gains])) >= needed(places)).any(axis=(0, 2))
    return is_claimed


def _share(is_wrong: Array) -> Mean:
    return Mean(100 * is_wrong.mean(), 100 * is_wrong.std() / np.sqrt(len(is_wrong)))
