"""Merge adjacent matrices: queries with keys, values with outputs.

    patterns   P_i = x W^P_i, W^P_i = W^Q_i (W^K_i)ᵀ; scores_i = P_i xᵀ / sqrt(d_h)
    messages   M_i = x W^M_i, W^M_i = W^V_i W^O_i;    out = sum_i weights_i M_i

("Refactoring the Attention Equations: Patterns and Messages", 2025, sections 3 to 5.) Both are
d x d for each head, of rank d_h at most. The merged block has another genome and the same outputs.
It is cheaper with one head, more expensive with many, and its matrices read and write features of
the token. ``nas.factor`` is the inverse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.common.config import describe, near
from nas.common.errors import ConfigError
from nas.compiler.plan import Step
from nas.genome import Genome
from nas.surgery.matrices import Affine, MatrixBlock, agree, check_readers

FORMS: Final = ("patterns", "messages", "both")


def merge(block: nn.Module, what: str = "both") -> nn.Module:
    """The merged form of a block: a new block with the same outputs.

    A bias of queries becomes one of the patterns, a bias of values one of the messages. A bias of
    keys adds the same number to all scores of a query and is dropped if the weights do not depend
    on it. A bias of W_O is added to the messages if weights sum to one; a row without visible keys
    then gives 0. Heads that share keys or values get separate matrices (keys also if only messages
    are merged); streams without projection get one where necessary.

    Args:
        block: made by ``nas.build_attention``, trained or not; it is not changed.
        what: "patterns", "messages" or "both".

    Returns:
        A block as ``nas.build_attention`` makes them, of the old block's precision, device, mode.

    Raises:
        ConfigError: ``what`` is another word.
        GenomeError: no matrix has the same effect; the message names what stands between.
    """
    if what not in FORMS:
        raise ConfigError(
            f"merge, what: found {describe(what)}; expected one of {', '.join(FORMS)}"
            f"{near(what, FORMS)}."
        )
    matrices = MatrixBlock.of(block, "merge")
    if what in ("patterns", "both"):
        matrices = _merge_patterns(matrices)
    if what in ("messages", "both"):
        matrices = _merge_messages(matrices)
    return matrices.as_block(block)


def _merge_patterns(block: MatrixBlock) -> MatrixBlock:
    block.task = "merge, patterns"
    score = block.score()
    query, key = (
        block.affine(operand.ref, use).repeat(block.count(score))
        for operand, use in zip(score.operands, ("queries", "keys"), strict=True)
    )
    # Scores of whole tokens are scaled by the head width, those of the block by its own.
    factor = block.scale(score) * (block.dim // block.heads) ** 0.5
    patterns = query.then(factor * key.weight.mT)
    merged = block.rebuilt(_pattern_genome(block, score), {"q": patterns})
    if bool(key.bias.any()) and not agree(block, merged, block.dim):
        raise block.refusal(
            "the keys have a bias, which adds a number to all scores of a query, and the weights "
            "change with it; expected keys without bias, or a normaliser like softmax"
        )
    return merged


def _pattern_genome(block: MatrixBlock, score: Step) -> Genome:
    """The genome with patterns as q and whole tokens as k."""
    old = block.genome
    genome = old.with_inputs(score.index, "q", "k")
    check_readers(block, genome, score.index, "q", "k")
    changes: dict[str, Any] = {"has_wq": True, "has_wk": False, "raw": "shared"}
    reads_v = any("v" in genome.nodes[index].inputs for index in genome.live())
    if reads_v and not old.projections.has_wv and old.projections.raw == "slice":
        # Raw streams become whole tokens; values that were slices need a projection.
        if old.projections.merge == "sum":
            raise block.refusal(
                "values are slices of the token and heads are summed, where projected values are "
                "as wide as the model; expected has_wv: true"
            )
        changes |= {"has_wv": True, "kv_heads": "all"}
    projections = replace(old.projections, q_heads=score.heads, qk_dim="all", **changes)
    return replace(genome, projections=projections)


def _merge_messages(block: MatrixBlock) -> MatrixBlock:
    block.task = "merge, messages"
    aggregate, maps = _aggregation(block)
    count = block.count(aggregate)
    values = block.affine(aggregate.operands[1].ref, "values").repeat(count)
    constant = torch.zeros_like(values.bias)
    for step in maps:
        weight, bias = block.linear(f"{step.module}.linear")
        values, constant = values.then(weight), constant @ weight.mT + bias
    weight, bias = _output(block, count)
    values = values.then(weight)
    rest = bias + torch.einsum("hdw,hw->d", weight, constant)
    messages = Affine(values.weight, values.bias + rest / count)
    merged = block.rebuilt(_message_genome(block, aggregate), {"v": messages})
    if bool(rest.any()) and not agree(block, merged, block.dim):
        raise block.refusal(
            "the output has a bias, which messages carry only where the weights of a query sum "
            "to one, and here they do not; expected no bias, or a normaliser like softmax"
        )
    return merged


def _aggregation(block: MatrixBlock) -> tuple[Step, list[Step]]:
    """The weighted sum that the output comes from, and the linear maps after it in order."""
    step = block.plan.steps[-1]
    maps: list[Step] = []
    while step.primitive.name == "linear" and isinstance(step.operands[0].ref, int):
        maps.insert(0, step)
        step = block.plan.steps[step.operands[0].ref]
    if step.primitive.name != "weighted_sum":
        raise block.refusal(
            f"{step.module} stands between the aggregation and the output; expected weighted_sum, "
            "followed by linear alone"
        )
    return step, maps


def _output(block: MatrixBlock, count: int) -> tuple[Float[Tensor, "h d w"], Float[Tensor, " d"]]:
    """The map of each head's features to the output, and the bias; identity without W_O."""
    projections = block.genome.projections
    weight = torch.eye(block.dim, dtype=torch.float64)
    bias = weight.new_zeros(block.dim)
    if projections.has_wo:
        weight, bias = block.linear("wo")
    if projections.merge == "sum":
        return weight.expand(count, -1, -1), bias
    return weight.reshape(block.dim, count, -1).transpose(0, 1), bias


def _message_genome(block: MatrixBlock, aggregate: Step) -> Genome:
    """The genome with messages as v, summed over the heads without W_O."""
    old, index = block.genome, aggregate.index
    nodes = old.nodes[: index + 1]
    if not old.projections.has_wv:
        # Nodes that read the token itself as v get another name for it, if there is one.
        raw = next((s for s in ("k", "q") if not old.projections.has_projection(s)), "v")
        nodes = tuple(node.renamed({"v": raw}) for node in nodes)
    projections = replace(
        old.projections, has_wv=True, has_wo=False, merge="sum", kv_heads=aggregate.heads
    )
    genome = replace(old, nodes=nodes, projections=projections)
    genome = genome.with_inputs(index, nodes[index].inputs[0], "v")
    check_readers(block, genome, index, "v")
    return genome
