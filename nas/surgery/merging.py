"""Merge adjacent matrices: queries with keys, values with outputs.

    patterns   P_i = x W^P_i, W^P_i = W^Q_i (W^K_i)ᵀ; scores_i = P_i xᵀ / sqrt(d_h)
    messages   M_i = x W^M_i, W^M_i = W^V_i W^O_i;    out = sum_i weights_i M_i

("Refactoring the Attention Equations: Patterns and Messages", 2025, sections 3 to 5.) The matrices
W^P_i and W^M_i of a head are d x d and have at most the rank d_h, the head width. A bias of the
patterns is an additional row of their matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from nas.common.arguments import public
from nas.surgery.matrices import MatrixBlock, agree, mapped, refusal, repeated


@public
def merge(block: nn.Module, what: Literal["patterns", "messages", "both"] = "both") -> nn.Module:
    """Return an attention block with merged matrices and the same outputs, compared in float64.

    Biases of queries and values become biases of patterns and messages. A bias of keys adds the
    same number to all scores of a query; it is dropped if the weights do not depend on this number.
    A bias of W_O is added to the messages if the weights of each query sum to one; a query without
    visible keys then has the output 0. Heads that share keys or values get separate matrices.

    Args:
        block: a block made by ``nas.build_attention``; it is not changed. The result has its
            precision, device and mode.
        what: "patterns", the products of query and key matrices; "messages", those of value and
            output matrices; or both.

    Raises:
        GenomeError: no matrix has the same effect; the message names the operation or bias.
    """
    matrices = MatrixBlock.of(block)
    if what != "messages":
        matrices = _merge_patterns(matrices)
    if what != "patterns":
        matrices = _merge_messages(matrices)
    return matrices.as_block(block)


def _merge_patterns(block: MatrixBlock) -> MatrixBlock:
    score, scale = block.score()
    count = score.type.head_count(block.heads)
    query, key = (repeated(block.stream(o.ref), count) for o in score.operands)
    # Scores of whole tokens are scaled by the head width, scores of the block by its key width.
    patterns = mapped(scale * (block.dim // block.heads) ** 0.5 * key[..., :-1].mT, query)
    old = block.genome.projections
    node = replace(block.genome.nodes[score.index], inputs=("q", "k"))
    genome = block.genome.with_node(score.index, node)
    block.check_readers(score.index, "q", "k")
    if any("v" in node.inputs for node in genome.nodes) and not old.has_wv and old.raw == "slice":
        raise refusal("values are slices of the token; expected has_wv: true or raw: shared")
    projections = replace(
        old, has_wq=True, has_wk=False, raw="shared", q_heads=score.heads, qk_dim="all"
    )
    merged = block.rebuilt(replace(genome, projections=projections), {"q": patterns})
    if not agree(block, merged):
        raise refusal(
            "the keys have a bias, which adds a number to all scores of a query, and the weights "
            "change with it; expected keys without bias, or a normaliser like softmax"
        )
    return merged


def _merge_messages(block: MatrixBlock) -> MatrixBlock:
    aggregate = block.plan.steps[-1]
    if aggregate.primitive.name != "weighted_sum":
        raise refusal(
            f"{aggregate.module} stands between the aggregation and the output; expected "
            "weighted_sum"
        )
    count, index = aggregate.type.head_count(block.heads), aggregate.index
    old = block.genome.projections
    values = repeated(block.stream(aggregate.operands[1].ref), count)
    output = block.linear("wo") if old.has_wo else torch.eye(block.dim, block.dim + 1).double()
    weight, bias = output[:, :-1], output[:, -1]
    if old.merge == "sum":
        by_head = weight.expand(count, -1, -1)
    else:
        by_head = weight.reshape(block.dim, count, -1).transpose(0, 1)
    messages = mapped(by_head, values)
    messages[..., -1] += bias / count  # carried by weights that sum to one

    nodes, raw = block.genome.nodes, "v"
    if not old.has_wv:
        # Nodes that read the token itself as v get another name for it, if there is one.
        raw = next((stream for stream in ("k", "q") if not old.has_projection(stream)), "v")
        nodes = tuple(node.renamed({"v": raw}) for node in nodes)
    if raw == "v":
        block.check_readers(index, "v")
    projections = replace(old, has_wv=True, has_wo=False, merge="sum", kv_heads=aggregate.heads)
    genome = replace(block.genome, nodes=nodes, projections=projections)
    node = replace(nodes[index], inputs=(nodes[index].inputs[0], "v"))
    genome = genome.with_node(index, node)
    merged = block.rebuilt(genome, {"v": messages})
    if not agree(block, merged):
        raise refusal(
            "the output has a bias, which messages carry only where the weights of a query sum "
            "to one, and here they do not; expected no bias, or a normaliser like softmax"
        )
    return merged
