"""Factor merged matrices again: patterns into queries and keys, messages into values and outputs.

    W^P_i ≈ W^Q_i (W^K_i)ᵀ        W^M_i ≈ W^V_i W^O_i

by truncated singular value decompositions, U S Vᵀ to U sqrt(S) and sqrt(S) Vᵀ: of all factors of
that rank none is nearer in the Frobenius norm (Eckart and Young 1936), and what was merged from
such factors comes back exactly. A bias of patterns is decomposed along with them, as the row that a
feature of constant 1 would have.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.compiler.plan import Step
from nas.genome import LABELS, key_width
from nas.genome.types import MODEL
from nas.surgery.body import Affine, Body, agree, check_readers


def factor(block: nn.Module, rank: int) -> nn.Module:
    """The factored form of a block that holds patterns, messages or both.

    Patterns become queries and keys of width ``rank``; messages become values of the head's width
    and W_O, since a genome names no other width for values. Lossless where the true rank allows it,
    as the head's width always does after ``nas.merge``; else merging the result again shows what
    was lost. Keys that heads shared are found again where the values are still shared and the
    patterns still have that structure.

    Args:
        block: made by ``nas.build_attention`` or ``nas.merge``; it is left as it is.
        rank: the width of a head's queries and keys: what ``qk_dim`` can name at this size.

    Returns:
        A block as ``nas.build_attention`` makes them, of the old one's precision, device and mode.
        The bias of messages becomes that of W_O where the weights of a query sum to one (a row that
        sees no key then gets it too), else one of the values.

    Raises:
        GenomeError: the block holds neither patterns nor messages, no genome can say the rank, or
            something else reads what would change.
    """
    body = Body.of(block, "factor")
    score, aggregate = _patterns_of(body), _messages_of(body)
    if score is None and aggregate is None:
        raise body.refusal(
            "the block holds neither patterns (has_wk: false, raw: shared) nor messages (has_wo: "
            "false, merge: sum); expected a merged block, such as nas.merge(block) gives"
        )
    label = _label(body, rank, score is not None)
    if score is not None:
        eps = torch.finfo(next(block.parameters()).dtype).eps
        body = _queries_and_keys(body, score, rank, label, eps)
    if aggregate is not None:
        body = _values_and_outputs(body, body.plan.steps[-1])
    return body.as_block(block)


def _label(body: Body, rank: int, has_patterns: bool) -> str:
    """What ``qk_dim`` calls a rank at this size."""
    width = body.dim // body.heads
    # Where labels name one width the last wins, so that the head's width is "all".
    known = {key_width(label, width): label for label in reversed(LABELS["qk_dim"])}
    if not has_patterns:
        known = {width: "all"}
    if rank not in known:
        reason = "" if has_patterns else " alone, the width of values that a genome can name"
        raise body.refusal(
            f"found rank {rank}; expected {' or '.join(str(n) for n in sorted(known))}{reason}"
        )
    return known[rank]


def _patterns_of(body: Body) -> Step | None:
    """The score that matches patterns against whole tokens, if there is one."""
    has_projection = body.genome.projections.has_projection
    for step in body.plan.steps:
        if step.primitive.name == "scaled_dot_product" and step.width == MODEL:
            query, key = (operand.ref for operand in step.operands)
            is_raw = isinstance(key, str) and not has_projection(key)
            if query == "q" and has_projection("q") and is_raw:
                return step
    return None


def _messages_of(body: Body) -> Step | None:
    """The aggregation whose values are the output's messages, if there is one."""
    step, projections = body.plan.steps[-1], body.genome.projections
    if projections.has_wo or projections.merge != "sum" or step.primitive.name != "weighted_sum":
        return None
    values = step.operands[1]
    is_whole = projections.has_wv and values.type.width == MODEL
    return step if values.ref == "v" and is_whole else None


def _queries_and_keys(body: Body, score: Step, rank: int, label: str, eps: float) -> Body:
    body.score()  # a second score would read other queries and keys
    old, patterns = body.genome, body.stream("q")
    # W^P of each head with the bias as its last row.
    rows = torch.cat((patterns.weight.mT, patterns.bias.unsqueeze(1)), dim=1)
    rows = body.scale(score) * rank**0.5 * rows
    groups = _groups(body, rows, eps)
    kv_heads = old.projections.kv_heads if groups else old.projections.q_heads
    projections = replace(old.projections, has_wk=True, kv_heads=kv_heads, qk_dim=label)
    genome = replace(old, projections=projections).with_inputs(score.index, "q", "k")
    check_readers(body, genome, score.index, "q", "k")
    left, right = _halves(_stacked(rows, groups or len(rows)), rank)
    left = left.reshape(*rows.shape[:2], rank)
    keys = Affine(right, right.new_zeros(right.shape[:2]))
    return body.rebuilt(genome, {"q": Affine(left[:, :-1].mT, left[:, -1]), "k": keys})


def _stacked(rows: Float[Tensor, "h e d"], groups: int) -> Float[Tensor, "g f d"]:
    """The heads of a group under each other: the best common keys are those of the stack."""
    return rows.reshape(groups, -1, rows.shape[-1])


def _groups(body: Body, rows: Float[Tensor, "h e d"], eps: float) -> int | None:
    """How many heads keys have under the genome's ``kv_heads``; None if they need the queries'.

    That is where no values say ``kv_heads``, or where the patterns that would share keys have not,
    in the precision ``eps``, the rank of one head together.
    """
    values = (s.type for s in body.plan.streams if s.name == "v" and s.is_projected)
    groups = next((found.head_count(body.heads) for found in values), None)
    if groups is None:
        return None
    if groups >= len(rows):
        return len(rows)  # and repeated, where the values have more heads than the patterns
    stack = _stacked(rows, groups)
    ranks = torch.linalg.matrix_rank(stack, rtol=eps * max(stack.shape[1:]))
    return groups if int(ranks.max()) <= body.dim // body.heads else None


def _values_and_outputs(body: Body, aggregate: Step) -> Body:
    old, messages, count = body.genome, body.stream("v"), body.count(aggregate)
    check_readers(body, old, aggregate.index, "v")
    kept, moved = messages.bias, messages.bias.new_zeros(body.dim)
    bare = body.rebuilt(old, {"v": Affine(messages.weight, torch.zeros_like(kept))})
    constant = messages.repeat(count).bias.sum(dim=0)
    if agree(body, lambda x, mask: bare(x, mask) + constant, body.dim):
        kept, moved = torch.zeros_like(kept), constant
    columns = torch.cat((messages.weight, kept.unsqueeze(2)), dim=2)  # (h, d, d + 1)
    left, right = _halves(columns, body.dim // body.heads)
    values = Affine(right[:, :, :-1], right[:, :, -1])
    output = left.repeat_interleave(count // len(left), dim=0).transpose(0, 1).flatten(1)
    projections = replace(old.projections, has_wo=True, merge="concat")
    return body.rebuilt(replace(old, projections=projections), {"v": values}, (output, moved))


def _halves(
    matrices: Float[Tensor, "h m n"], rank: int
) -> tuple[Float[Tensor, "h m r"], Float[Tensor, "h r n"]]:
    """Two factors of equal norm, nearest to each matrix among those of that rank."""
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    roots = values[:, :rank].sqrt()
    return left[:, :, :rank] * roots.unsqueeze(1), roots.unsqueeze(2) * right[:, :rank]
