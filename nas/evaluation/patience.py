"""How long a dispatcher waits: for each answer, and for a cluster that has no worker at all."""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from nas.evaluation.trial import Kind

    Clock = Callable[[], float]

SILENCE_SECONDS: Final = 30.0
"""Without any worker, after which that is said."""


class Deadlines:
    """Times by which things are to be seen to; one that is no longer awaited is passed over."""

    def __init__(self, clock: Clock, awaited: Container[Any]) -> None:
        self._clock, self._awaited, self._count = clock, awaited, count()
        self._times: list[tuple[float, int, Any]] = []

    def add(self, seconds: float, what: Any) -> None:
        """See to it after so long."""
        if seconds < math.inf:
            heapq.heappush(self._times, (self._clock() + seconds, next(self._count), what))

    def next(self) -> float:
        """When something is due; infinity for never."""
        while self._times and self._times[0][2] not in self._awaited:
            heapq.heappop(self._times)
        return self._times[0][0] if self._times else math.inf

    def due(self) -> Iterator[Any]:
        """What is due by now, each once."""
        while self.next() <= self._clock():
            yield heapq.heappop(self._times)[2]


class NoWorkerTimeout:
    """The time that there has been no worker at all.

    Args:
        most: seconds that it may last.
        say: called once it has lasted for some time, and when it is over.
    """

    def __init__(self, clock: Clock, most: float, say: Callable[[Kind, str], None]) -> None:
        self._clock, self._most, self._say = clock, most, say
        self._since: float | None = clock()
        self._is_said = False
        self.fault = ""  # of the worker that was lost last as it started, in words

    def begin(self) -> None:
        """The last worker is gone."""
        self._since = self._clock()

    def end(self) -> None:
        """There is one."""
        self._since, self.fault = None, ""
        if self._is_said:
            self._is_said = False
            self._say("back", "there are workers again.")

    def next(self) -> float:
        """When there is something to say; infinity for never."""
        if self._since is None:
            return math.inf
        return self._since + (self._most if self._is_said else min(SILENCE_SECONDS, self._most))

    def check(self) -> None:
        """Say what there is to say.

        Raises:
            DeviceError: it has lasted too long.
        """
        if self._since is None or self._clock() < self.next():
            return
        why = f"; {self.fault.rstrip('.')}" if self.fault else ""
        if self._clock() - self._since >= self._most:
            raise DeviceError(
                f"no worker started within {self._most:.0f} s: the cluster may be busy{why}. Try "
                "fewer workers, a longer --start-seconds, or train on this machine with --backend "
                "local."
            )
        self._is_said = True
        self._say(
            "waiting",
            f"no worker for {SILENCE_SECONDS:.0f} s{why}: waiting for the cluster, "
            f"{self._most:.0f} s in all (--start-seconds).",
        )
