"""The named mechanisms that start a search."""

from __future__ import annotations

from nas.common.errors import GenomeError, SpaceError
from nas.genome import Genome
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import NamedMechanism, mechanism
from nas.genome.primitives import get
from nas.space.space import SearchSpace
from nas.space.validation import Policy, validate


def seeds(
    space: SearchSpace, policy: Policy, is_causal: bool = False
) -> tuple[NamedMechanism, ...]:
    """The named mechanisms of a space's first population.

    If the space or ``is_causal`` requires it, mechanisms that see later tokens are left out.

    Raises:
        SpaceError: a mechanism violates the policy or is not in the space.
    """
    seeded = []
    for name in space.mechanisms:
        try:
            seed = mechanism(name)
        except GenomeError as error:
            raise SpaceError(f"space {space.name}, mechanisms: {error}") from None
        if (is_causal or space.causal) and _sees_ahead(seed.genome):
            continue
        reason = next((v.message for v in validate(seed.genome, policy)), None)
        # As written or in normal form, which has no projections of unread streams.
        if space.excludes(seed.genome) is not None:
            reason = reason or space.excludes(canonicalise(seed.genome))
        if reason is not None:
            raise SpaceError(f"space {space.name}, mechanisms: {name} {reason}.")
        seeded.append(seed)
    return tuple(seeded)


def _sees_ahead(genome: Genome) -> bool:
    calls = ((get(node.op), node.param_dict()) for node in genome.nodes)
    return any(not primitive.is_causal_safe(primitive.full(params)) for primitive, params in calls)
