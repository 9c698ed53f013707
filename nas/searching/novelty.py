"""Novelty: which attempts of an algorithm are worth training.

An attempt is brought to its canonical form, judged by the policy (the independent validator: what
has not passed is never trained) and named by its digest at the task's sizes. One that was seen
before in the run is *replayed*: its result is known. One that the sizes or the policy do not allow
is *rejected*. Only *new* ones are trained, and a generation is filled with these alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nas.canonical import canonicalise, digest
from nas.errors import GenomeError
from nas.validation import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nas.genome import Genome
    from nas.validation import Policy

    Key: TypeAlias = Callable[[Genome], str]

Outcome: TypeAlias = Literal["new", "replayed", "rejected"]

# Attempts in a row without a new mechanism after which a space counts as exhausted.
MAX_ATTEMPTS: Final = 1000
ILLEGAL: Final = "internal error, the policy forbids it: "


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an operator made.

    Args:
        origin: the operator, or where the genome was taken from.
        parents: digests of the genomes that it was made from.
    """

    genome: Genome
    origin: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposed:
    """An attempt as judged.

    Args:
        genome: in canonical form, if it has one.
        digest: of the canonical form.
        key: digest at the task's sizes; None for a rejected one.
        note: why it was rejected, or nothing.
    """

    genome: Genome
    origin: str
    parents: tuple[str, ...]
    digest: str
    key: str | None
    outcome: Outcome
    note: str = ""

    @property
    def is_new(self) -> bool:
        """Whether it is to be trained."""
        return self.outcome == "new"


class Novelty:
    """Judges attempts and remembers the keys of all that were new."""

    def __init__(self, policy: Policy, key: Key) -> None:
        """Take the judge's two measures.

        Args:
            key: names a canonical genome at the task's sizes; raises GenomeError if it does not
                exist there.
        """
        self._policy = policy
        self._key = key
        self._seen: set[str] = set()

    def judge(self, attempt: Attempt) -> Proposed:
        """Judge an attempt; a new one is known from now on."""
        genome = canonicalise(attempt.genome)
        name = digest(genome)
        # As made, not as named: streams without projections share one name in canonical form.
        violations = validate(attempt.genome, self._policy)
        if violations:
            return _rejected(attempt, genome, name, ILLEGAL + violations[0].message)
        try:
            key = self._key(genome)
        except GenomeError as error:
            return _rejected(attempt, genome, name, str(error))
        outcome: Outcome = "replayed" if key in self._seen else "new"
        self._seen.add(key)
        return Proposed(genome, attempt.origin, attempt.parents, name, key, outcome)


def fill(novelty: Novelty, wanted: int, draw: Callable[[int], Attempt]) -> list[Proposed]:
    """Draw until ``wanted`` attempts were new; give all attempts in order.

    Args:
        draw: makes an attempt; it is told how many failed in a row, so that it can try harder.

    Returns:
        All that was tried. Fewer than ``wanted`` new ones mean that ``MAX_ATTEMPTS`` in a row
        failed: the space counts as exhausted.
    """
    tried: list[Proposed] = []
    for _ in range(wanted):
        for num_failed in range(MAX_ATTEMPTS):
            tried.append(novelty.judge(draw(num_failed)))
            if tried[-1].is_new:
                break
        else:
            break
    return tried


def new_ones(proposals: Sequence[Proposed]) -> list[Proposed]:
    """Those to be trained, in order."""
    return [proposed for proposed in proposals if proposed.is_new]


def _rejected(attempt: Attempt, genome: Genome, name: str, note: str) -> Proposed:
    return Proposed(genome, attempt.origin, attempt.parents, name, None, "rejected", note)
