"""Merge adjacent matrices (queries with keys, values with outputs), and factor merged matrices.

    patterns   P_i = x W^P_i, W^P_i = W^Q_i (W^K_i)ᵀ; scores_i = P_i xᵀ / sqrt(d_h)
    messages   M_i = x W^M_i, W^M_i = W^V_i W^O_i;    out = sum_i weights_i M_i

("Refactoring the Attention Equations: Patterns and Messages", 2025, sections 3 to 5.) The matrices
W^P_i and W^M_i of a head are d x d and have at most the rank d_h, the head width.

A matrix is factored by its singular value decomposition U S Vᵀ, truncated to the given rank, into U
sqrt(S) and sqrt(S) Vᵀ, whose product is the nearest matrix of this rank in the Frobenius norm
(Eckart and Young 1936). A bias of the patterns is an additional row of their matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.common.arguments import public
from nas.common.errors import ConfigError
from nas.compiler.plan import Step
from nas.genome import LABELS, key_width
from nas.genome.types import MODEL
from nas.surgery.matrices import MatrixBlock, agree, mapped, refusal, repeated

FORMS: Final = ("patterns", "messages", "both")


@public
def merge(block: nn.Module, what: str = "both") -> nn.Module:
    """Return an attention block with merged matrices and the same outputs.

    The patterns are the products of query and key matrices, the messages those of value and output
    matrices. Biases of queries and values become biases of patterns and messages. A bias of keys
    adds the same number to all scores of a query; it is dropped if the weights do not depend on
    this number. A bias of W_O is added to the messages if the weights of each query sum to one; a
    query without visible keys then has the output 0. Heads that share keys or values get separate
    matrices. Outputs of both blocks are compared in float64.

    Args:
        block: a block made by ``nas.build_attention``; it is not changed. The result has its
            precision, device and mode.
        what: "patterns", "messages" or "both".

    Raises:
        ConfigError: ``what`` is another word.
        GenomeError: no matrix has the same effect; the message names the operation or bias that
            prevents merging.
    """
    if what not in FORMS:
        raise ConfigError(f"what: found {what!r}; expected one of {', '.join(FORMS)}.")
    matrices = MatrixBlock.of(block)
    if what in ("patterns", "both"):
        matrices = _merge_patterns(matrices)
    if what in ("messages", "both"):
        matrices = _merge_messages(matrices)
    return matrices.as_block(block)


@public
def factor(block: nn.Module, rank: int) -> nn.Module:
    """Return an attention block whose merged matrices are factored into smaller ones again.

    Patterns become queries and keys of width ``rank``, messages become W_O and values of the head
    width. The outputs do not change if no matrix has a larger rank than its factors, as after
    ``nas.merge`` with the head width as ``rank``; otherwise they are approximate. Every head gets
    its own keys. The bias of messages becomes a bias of W_O, which queries without visible keys get
    too, if the weights of each query sum to one; otherwise a bias of the values.

    Args:
        block: a block made by ``nas.build_attention`` or ``nas.merge``; it is not changed. The
            result has its precision, device and mode.
        rank: the width of a head's queries and keys; it must be a width that the genome's field
            ``qk_dim`` can name.

    Raises:
        GenomeError: the block holds neither patterns nor messages, ``qk_dim`` cannot name the rank,
            or another node reads queries, keys or values that would change.
    """
    matrices = MatrixBlock.of(block)
    score, has_messages = _patterns_of(matrices), _has_messages(matrices)
    if score is None and not has_messages:
        raise refusal(
            "it has neither patterns (has_wk: false, raw: shared) nor messages (has_wo: "
            "false, merge: sum); expected a merged block, such as nas.merge(block) gives"
        )
    label = _label(matrices, rank, score is not None)
    if score is not None:
        matrices = _factor_patterns(matrices, rank, label)
    if has_messages:
        matrices = _factor_messages(matrices)
    return matrices.as_block(block)


def _merge_patterns(block: MatrixBlock) -> MatrixBlock:
    score, scale = block.score()
    query, key = (repeated(block.stream(o.ref), block.count(score)) for o in score.operands)
    # Scores of whole tokens are scaled by the head width, scores of the block by its key width.
    patterns = mapped(scale * (block.dim // block.heads) ** 0.5 * key[..., :-1].mT, query)
    old = block.genome.projections
    genome = block.genome.with_inputs(score.index, "q", "k")
    block.check_readers(score.index, "q", "k")
    if any("v" in node.inputs for node in genome.nodes) and not old.has_wv and old.raw == "slice":
        raise refusal("values are slices of the token; expected has_wv: true or raw: shared")
    projections = replace(
        old, has_wq=True, has_wk=False, raw="shared", q_heads=score.heads, qk_dim="all"
    )
    merged = block.rebuilt(replace(genome, projections=projections), {"q": patterns})
    if not agree(block, merged, block.dim):
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
    count, old, index = block.count(aggregate), block.genome.projections, aggregate.index
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
    genome = genome.with_inputs(index, nodes[index].inputs[0], "v")
    merged = block.rebuilt(genome, {"v": messages})
    if not agree(block, merged, block.dim):
        raise refusal(
            "the output has a bias, which messages carry only where the weights of a query sum "
            "to one, and here they do not; expected no bias, or a normaliser like softmax"
        )
    return merged


def _label(block: MatrixBlock, rank: int, has_patterns: bool) -> str:
    """Return the genome's name (``qk_dim``) of the key width ``rank``.

    Raises:
        GenomeError: a genome has no such name; values have the head width only.
    """
    width = block.dim // block.heads
    labels = {key_width(label, width): label for label in reversed(LABELS["qk_dim"])}
    if not has_patterns:
        labels = {width: "all"}
    if rank not in labels:
        reason = "" if has_patterns else ", the only width of values that a genome can name"
        raise refusal(
            f"found rank {rank}; expected {' or '.join(map(str, sorted(labels)))}{reason}"
        )
    return labels[rank]


def _patterns_of(block: MatrixBlock) -> Step | None:
    """Return the step that multiplies patterns with tokens; None if the block has no patterns."""
    has_projection = block.genome.projections.has_projection
    for step in block.plan.steps:
        if step.primitive.name == "scaled_dot_product" and step.width == MODEL:
            query, key = (operand.ref for operand in step.operands)
            is_raw = isinstance(key, str) and not has_projection(key)
            if query == "q" and has_projection("q") and is_raw:
                return step
    return None


def _has_messages(block: MatrixBlock) -> bool:
    step, projections = block.plan.steps[-1], block.genome.projections
    if projections.has_wo or projections.merge != "sum" or step.primitive.name != "weighted_sum":
        return False
    values = step.operands[1]
    return values.ref == "v" and projections.has_wv and values.type.width == MODEL


def _factor_patterns(block: MatrixBlock, rank: int, label: str) -> MatrixBlock:
    score, scale = block.score()  # a second score would read other queries and keys
    old = block.genome.projections
    # W^P of each head, with the bias as its last row.
    rows = scale * rank**0.5 * block.stream("q").mT
    values = (s.type for s in block.plan.streams if s.name == "v" and s.is_projected)
    has_more_values = any(value.head_count(block.heads) >= len(rows) for value in values)
    kv_heads = old.kv_heads if has_more_values else old.q_heads
    projections = replace(old, has_wk=True, kv_heads=kv_heads, qk_dim=label)
    genome = replace(block.genome, projections=projections).with_inputs(score.index, "q", "k")
    block.check_readers(score.index, "q", "k")
    left, right = _halves(rows, rank)
    return block.rebuilt(genome, {"q": left.mT, "k": nn.functional.pad(right, (0, 1))})


def _factor_messages(block: MatrixBlock) -> MatrixBlock:
    aggregate, old = block.plan.steps[-1], block.genome
    messages, count = block.stream("v"), block.count(block.plan.steps[-1])
    block.check_readers(aggregate.index, "v")
    unbiased = messages.clone()
    unbiased[..., -1] = 0.0
    bare = block.rebuilt(old, {"v": unbiased})
    output_bias = repeated(messages, count)[..., -1].sum(dim=0)
    if agree(block, lambda x, mask: bare(x, mask) + output_bias, block.dim):
        messages = unbiased
    else:
        output_bias = torch.zeros_like(output_bias)
    left, values = _halves(messages, block.dim // block.heads)
    output = repeated(left, count).transpose(0, 1).flatten(1)
    projections = replace(old.projections, has_wo=True, merge="concat")
    wo = torch.cat((output, output_bias.unsqueeze(1)), dim=1)
    return block.rebuilt(replace(old, projections=projections), {"v": values}, wo)


def _halves(
    matrices: Float[Tensor, "h m n"], rank: int
) -> tuple[Float[Tensor, "h m r"], Float[Tensor, "h r n"]]:
    """Return two factors of each matrix, whose product is the nearest matrix of this rank."""
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    roots = values[:, :rank].sqrt()
    return left[:, :, :rank] * roots.unsqueeze(1), roots.unsqueeze(2) * right[:, :rank]
