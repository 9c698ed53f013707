"""The algorithm ``surrogate`` without one of its parts, to measure its worth.

A variant replaces a constant or a function of nas.searching or of nas.space.vary while its
search runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

import numpy as np

from benchmarks.peers.ours import ours
from nas.searching import archive, gaussian_process, quality_model, surrogate
from nas.searching.algorithm import SearchContext
from nas.space.vary.mutation import GRAPH_OPERATORS

if TYPE_CHECKING:
    from benchmarks.peers.problem import Problem
    from nas.genome import Genome

Change = Callable[[], Any]  # returns a context manager


def _count_features(genome: Genome, costs: Mapping[str, float]) -> dict[str, float]:
    """Return features with plain numbers of operations and edges instead of logarithms."""
    logs = quality_model.features(genome, costs)
    return {
        name: value if name.startswith(gaussian_process.LOG) else 2.0**value - 1
        for name, value in logs.items()
    }


class _NoLinearPart(gaussian_process.DotProduct):  # type: ignore[misc]
    """A kernel that is 0, in place of the linear one."""

    def __call__(self, x: Any, y: Any = None, eval_gradient: bool = False) -> Any:
        values = super().__call__(x, y, eval_gradient)
        return (0 * values[0], values[1]) if eval_gradient else 0 * values

    def diag(self, x: Any) -> Any:
        return np.zeros(len(x))


def _fit_without_linear_part(*args: Any) -> gaussian_process.Kernel:
    with patch.object(gaussian_process, "DotProduct", _NoLinearPart):
        return replace(_FIT(*args), linear_variance=0.0)


_FIT: Final = gaussian_process._fit
_UNPAIRED: Final = {name: f for name, f in GRAPH_OPERATORS.items() if name != "insert_pair"}

# Each variant is the algorithm with these changes.
CHANGES: Final[Mapping[str, tuple[Change, ...]]] = {
    "no linear part": (partial(patch.object, gaussian_process, "_fit", _fit_without_linear_part),),
    "plain counts": (partial(patch.object, archive, "features", _count_features),),
    "one round": (partial(patch.object, surrogate, "ROUNDS", 1),),
    "random start": (
        partial(patch.object, SearchContext, "initial", lambda self, rng, *_: self.sample(rng)),
    ),
    "no insert_pair": (partial(patch.dict, GRAPH_OPERATORS, _UNPAIRED, clear=True),),
    "all screened": (partial(patch.object, surrogate, "UNSCREENED", 0.0),),
}


@contextmanager
def _applied(changes: tuple[Change, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change())
        yield


def _search(changes: tuple[Change, ...], problem: Problem, seed: int) -> None:
    """Run the algorithm with changes. The search's reports are computed with the same changes."""

    def report(after: int) -> list[str]:
        with _applied(changes):
            return reported(after)

    try:
        with _applied(changes):
            ours("surrogate")(problem, seed)
    finally:
        reported = cast("Callable[[int], list[str]]", problem.report)
        problem.report = report


ABLATIONS: Final[Mapping[str, Callable[[Problem, int], None]]] = {
    **{name: partial(_search, changes) for name, changes in CHANGES.items()},
    "all of these": partial(_search, tuple(change for c in CHANGES.values() for change in c)),
}
