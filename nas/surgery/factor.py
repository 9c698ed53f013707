"""Factor merged matrices: patterns into queries and keys, messages into values and outputs.

    W^P_i ≈ W^Q_i (W^K_i)ᵀ        W^M_i ≈ W^V_i W^O_i

by truncated singular value decompositions, U S Vᵀ to U sqrt(S) and sqrt(S) Vᵀ, the nearest factors
of their rank in the Frobenius norm (Eckart and Young 1936); matrices that were merged from such
factors are recovered exactly. A bias of patterns is decomposed with them as an additional row.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.compiler.plan import Step
from nas.genome import LABELS, key_width
from nas.genome.types import MODEL
from nas.surgery.matrices import Affine, MatrixBlock, agree, check_readers


def factor(block: nn.Module, rank: int) -> nn.Module:
    """The factored form of a block with patterns, messages or both.

    Patterns become queries and keys of width ``rank``. Messages become values of the head width and
    W_O, since a genome has no other width of values. The result is exact if the rank suffices; the
    head width always suffices after ``nas.merge``. Otherwise ``nas.merge`` of the result shows the
    error. Shared keys are recovered if the values are still shared and the patterns still have that
    structure.

    Args:
        block: made by ``nas.build_attention`` or ``nas.merge``; it is not changed.
        rank: the width of a head's queries and keys, one that ``qk_dim`` can name at this size.

    Returns:
        A block as ``nas.build_attention`` makes them, of the old block's precision, device, mode.
        The bias of messages becomes that of W_O where the weights of a query sum to one (also in
        rows without visible keys), otherwise that of the values.

    Raises:
        GenomeError: the block holds neither patterns nor messages, no genome can name the rank, or
            another node reads what would change.
    """
    matrices = MatrixBlock.of(block, "factor")
    score, aggregate = _patterns_of(matrices), _messages_of(matrices)
    if score is None and aggregate is None:
        raise matrices.refusal(
            "the block holds neither patterns (has_wk: false, raw: shared) nor messages (has_wo: "
            "false, merge: sum); expected a merged block, such as nas.merge(block) gives"
        )
    label = _label(matrices, rank, score is not None)
    if score is not None:
        eps = torch.finfo(next(block.parameters()).dtype).eps
        matrices = _factor_patterns(matrices, score, rank, label, eps)
    if aggregate is not None:
        matrices = _factor_messages(matrices, matrices.plan.steps[-1])
    return matrices.as_block(block)


def _label(block: MatrixBlock, rank: int, has_patterns: bool) -> str:
    """The label of ``qk_dim`` that gives a rank at this size; "all" for the head width."""
    width = block.dim // block.heads
    labels = {key_width(label, width): label for label in reversed(LABELS["qk_dim"])}
    if not has_patterns:
        labels = {width: "all"}
    if rank not in labels:
        reason = "" if has_patterns else ", the only width of values that a genome can name"
        raise block.refusal(
            f"found rank {rank}; expected {' or '.join(map(str, sorted(labels)))}{reason}"
        )
    return labels[rank]


def _patterns_of(block: MatrixBlock) -> Step | None:
    """The score of patterns with whole tokens, if there is one."""
    has_projection = block.genome.projections.has_projection
    for step in block.plan.steps:
        if step.primitive.name == "scaled_dot_product" and step.width == MODEL:
            query, key = (operand.ref for operand in step.operands)
            is_raw = isinstance(key, str) and not has_projection(key)
            if query == "q" and has_projection("q") and is_raw:
                return step
    return None


def _messages_of(block: MatrixBlock) -> Step | None:
    """The aggregation of messages, if there is one."""
    step, projections = block.plan.steps[-1], block.genome.projections
    if projections.has_wo or projections.merge != "sum" or step.primitive.name != "weighted_sum":
        return None
    values = step.operands[1]
    is_whole = projections.has_wv and values.type.width == MODEL
    return step if values.ref == "v" and is_whole else None


def _factor_patterns(
    block: MatrixBlock, score: Step, rank: int, label: str, eps: float
) -> MatrixBlock:
    block.score()  # a second score would read other queries and keys
    old, patterns = block.genome, block.stream("q")
    # W^P of each head, with the bias as its last row.
    rows = torch.cat((patterns.weight.mT, patterns.bias.unsqueeze(1)), dim=1)
    rows = block.scale(score) * rank**0.5 * rows
    groups = _key_heads(block, rows, eps)
    kv_heads = old.projections.kv_heads if groups else old.projections.q_heads
    projections = replace(old.projections, has_wk=True, kv_heads=kv_heads, qk_dim=label)
    genome = replace(old, projections=projections).with_inputs(score.index, "q", "k")
    check_readers(block, genome, score.index, "q", "k")
    # The best shared keys of a group are those of its heads stacked.
    left, right = _halves(rows.reshape(groups or len(rows), -1, block.dim), rank)
    left = left.reshape(*rows.shape[:2], rank)
    keys = Affine(right, right.new_zeros(right.shape[:2]))
    return block.rebuilt(genome, {"q": Affine(left[:, :-1].mT, left[:, -1]), "k": keys})


def _key_heads(block: MatrixBlock, rows: Float[Tensor, "h e d"], eps: float) -> int | None:
    """The number of key heads under the genome's ``kv_heads``; None for that of the queries.

    None where no projected values use ``kv_heads``, or where the stacked patterns that would share
    keys exceed the rank of one head in the precision ``eps``.
    """
    values = (s.type for s in block.plan.streams if s.name == "v" and s.is_projected)
    groups = next((value.head_count(block.heads) for value in values), None)
    if groups is None:
        return None
    if groups >= len(rows):
        return len(rows)  # repeated where the values have more heads than the patterns
    stack = rows.reshape(groups, -1, block.dim)
    ranks = torch.linalg.matrix_rank(stack, rtol=eps * max(stack.shape[1:]))
    return groups if int(ranks.max()) <= block.dim // block.heads else None


def _factor_messages(block: MatrixBlock, aggregate: Step) -> MatrixBlock:
    old, messages, count = block.genome, block.stream("v"), block.count(aggregate)
    check_readers(block, old, aggregate.index, "v")
    value_bias, output_bias = messages.bias, messages.bias.new_zeros(block.dim)
    bare = block.rebuilt(old, {"v": Affine(messages.weight, torch.zeros_like(value_bias))})
    constant = messages.repeat(count).bias.sum(dim=0)
    if agree(block, lambda x, mask: bare(x, mask) + constant, block.dim):
        value_bias, output_bias = torch.zeros_like(value_bias), constant
    columns = torch.cat((messages.weight, value_bias.unsqueeze(2)), dim=2)  # (h, d, d + 1)
    left, right = _halves(columns, block.dim // block.heads)
    values = Affine(right[:, :, :-1], right[:, :, -1])
    output = left.repeat_interleave(count // len(left), dim=0).transpose(0, 1).flatten(1)
    projections = replace(old.projections, has_wo=True, merge="concat")
    genome = replace(old, projections=projections)
    return block.rebuilt(genome, {"v": values}, (output, output_bias))


def _halves(
    matrices: Float[Tensor, "h m n"], rank: int
) -> tuple[Float[Tensor, "h m r"], Float[Tensor, "h r n"]]:
    """Two factors of equal norm, the nearest of that rank to each matrix."""
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    roots = values[:, :rank].sqrt()
    return left[:, :, :rank] * roots.unsqueeze(1), roots.unsqueeze(2) * right[:, :rank]
