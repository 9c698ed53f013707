"""Normal forms of a genome's options: equal projections, masks and placements have one form."""

from __future__ import annotations

import math
from dataclasses import replace

from nas.genome import Genome, ModelSizes, Node, Placement, Visibility
from nas.genome.primitives import get
from nas.genome.types import MODEL, head_fraction, infer


def with_cut_heads(genome: Genome, sizes: ModelSizes | None = None) -> Genome:
    """Return an equal mechanism with all heads of the backbone, for one with a head of model width.

    A head has model width if ``Projections`` has ``raw="shared"`` or ``merge="sum"``. If all
    operations treat each feature alone, cutting this head into the heads of the backbone preserves
    the function, the projections' shapes and their initial distribution. Any other genome is
    returned unchanged. ``sizes`` evaluate head labels; without them, equality is at all sizes.
    """
    typing, live = infer(genome), genome.live()
    if typing.problems or not all(_is_featurewise(genome.nodes[i]) for i in live):
        return genome
    for tensor in (*map(typing.of, live), *map(typing.of, genome.streams())):
        fraction = head_fraction(tensor.heads)
        is_one_head = fraction == 0 or (sizes is not None and fraction * sizes.heads <= 1)
        if not is_one_head or tensor.width not in (None, MODEL):
            return genome
    cut = replace(genome.projections, q_heads="all", kv_heads="all", raw="slice", merge="concat")
    return replace(genome, projections=cut)


def _is_featurewise(node: Node) -> bool:
    primitive = get(node.op)
    return primitive.is_featurewise(primitive.full(node.param_dict()))


def plain_visibility(
    visibility: Visibility, tokens: int | None = None, is_causal: bool | None = None
) -> Visibility:
    """Return the normal form of a mask, which is the same for equal masks.

    Args:
        tokens: sequence length for which masks are compared; None compares them for all lengths.
        is_causal: True compares masks in causal calls, False in other calls, None in both.
    """
    window = visibility.window
    local = math.inf if tokens is None else tokens - visibility.global_tokens
    if window is None or (window >= local if is_causal else window // 2 >= local - 1):
        return Visibility()
    if window > 1 and (is_causal is False or (is_causal is None and window > local)):
        window -= window % 2
    return replace(visibility, window=window)


def plain_placement(
    placement: Placement, sizes: ModelSizes | None = None, is_causal: bool | None = None
) -> Placement:
    """Return the normal form of a placement, which is equal for equal layers and equal rest.

    The other arguments are those of ``canonicalise``.

    Raises:
        GenomeError: the placement selects no layer of the model.
    """
    placement = placement.simplified(sizes and sizes.depth)
    mask = plain_visibility(placement.rest.visibility, sizes and sizes.tokens, is_causal)
    rest = replace(placement.rest, window=mask.window, global_tokens=mask.global_tokens)
    return replace(placement, rest=rest)
