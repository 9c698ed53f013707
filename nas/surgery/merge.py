"""Merge matrices that meet without anything between them: queries with keys, values with outputs.

    patterns   P_i = x W^P_i, W^P_i = W^Q_i (W^K_i)ᵀ; scores_i = P_i xᵀ / sqrt(d_h)
    messages   M_i = x W^M_i, W^M_i = W^V_i W^O_i;    out = sum_i weights_i M_i

("Refactoring the Attention Equations: Patterns and Messages", 2025, sections 3 to 5.) Both d x d
for each head, of rank d_h at most. The merged block is another genome with the same outputs: it
costs less with one head and more with many, and shows what a head looks for and says in the
features of the token itself. ``nas.factor`` goes back.
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
from nas.genome import Genome, Ref
from nas.surgery.body import Affine, Body, agree, check_readers

WHAT: Final = ("patterns", "messages", "both")


def merge(block: nn.Module, what: str = "both") -> nn.Module:
    """The merged form of a block: a new block with the same outputs.

    A bias of queries becomes one of the patterns, a bias of values one of the messages. That of
    keys shifts all scores of a query alike and vanishes, which needs weights that ignore shifts;
    that of W_O joins the messages', which needs weights that sum to one, and a row that sees no key
    then gives 0 in its place. Heads that shared keys or values get matrices of their own, the keys
    too where messages alone are merged; streams without projection get one where they must.

    Args:
        block: made by ``nas.build_attention``, trained or not; it is left as it is.
        what: "patterns", "messages" or "both".

    Returns:
        A block as ``nas.build_attention`` makes them, of the old one's precision, device and mode.

    Raises:
        ConfigError: ``what`` is none of these.
        GenomeError: no one matrix has the same effect; the message says what stands between.
    """
    if what not in WHAT:
        raise ConfigError(
            f"merge, what: found {describe(what)}; expected one of {', '.join(WHAT)}"
            f"{near(what, WHAT)}."
        )
    body = Body.of(block, "merge")
    if what in ("patterns", "both"):
        body = _patterns(body)
    if what in ("messages", "both"):
        body = _messages(body)
    return body.as_block(block)


def _patterns(body: Body) -> Body:
    body.where = "merge, patterns"
    score = body.score()
    query, key = (
        body.affine(operand.ref, role).repeat(body.count(score))
        for operand, role in zip(score.operands, ("queries", "keys"), strict=True)
    )
    # Scores of whole tokens are scaled by the width of a head, those of the block by its own.
    factor = body.scale(score) * (body.dim // body.heads) ** 0.5
    patterns = query.then(factor * key.weight.mT)
    merged = body.rebuilt(_with_patterns(body, score), {"q": patterns})
    if bool(key.bias.any()) and not agree(body, merged, body.dim):
        raise body.refusal(
            "the keys have a bias, which adds a number to all scores of a query, and the weights "
            "change with it; expected keys without bias, or a normaliser like softmax"
        )
    return merged


def _with_patterns(body: Body, score: Step) -> Genome:
    """The genome with q as patterns and k as whole tokens."""
    old = body.genome
    edited = old.with_inputs(score.index, "q", "k")
    check_readers(body, edited, score.index, "q", "k")
    changes: dict[str, Any] = {"has_wq": True, "has_wk": False, "raw": "shared"}
    reads_v = any("v" in edited.nodes[index].inputs for index in edited.live())
    if reads_v and not old.projections.has_wv and old.projections.raw == "slice":
        # Raw streams are whole tokens from now on; values that were slices become projected.
        if old.projections.merge == "sum":
            raise body.refusal(
                "values are slices of the token and heads are summed, where projected values are "
                "as wide as the model; expected has_wv: true"
            )
        changes |= {"has_wv": True, "kv_heads": "all"}
    projections = replace(old.projections, q_heads=score.heads, qk_dim="all", **changes)
    return replace(edited, projections=projections)


def _messages(body: Body) -> Body:
    body.where = "merge, messages"
    aggregate, after = _aggregation(body)
    count = body.count(aggregate)
    values = body.affine(aggregate.operands[1].ref, "values").repeat(count)
    constant = torch.zeros_like(values.bias)
    for step in after:
        weight, bias = body.linear(f"{step.module}.linear")
        values, constant = values.then(weight), constant @ weight.mT + bias
    weight, bias = _output(body, count)
    values = values.then(weight)
    rest = bias + torch.einsum("hdw,hw->d", weight, constant)
    messages = Affine(values.weight, values.bias + rest / count)
    merged = body.rebuilt(_with_messages(body, aggregate), {"v": messages})
    if bool(rest.any()) and not agree(body, merged, body.dim):
        raise body.refusal(
            "the output has a bias, which messages carry only where the weights of a query sum "
            "to one, and here they do not; expected no bias, or a normaliser like softmax"
        )
    return merged


def _aggregation(body: Body) -> tuple[Step, list[Step]]:
    """The weighted sum that the output comes from, and the linear maps after it in order."""
    step = body.plan.steps[-1]
    after: list[Step] = []
    while step.primitive.name == "linear" and isinstance(step.operands[0].ref, int):
        after.insert(0, step)
        step = body.plan.steps[step.operands[0].ref]
    if step.primitive.name != "weighted_sum":
        raise body.refusal(
            f"{step.module} stands between the aggregation and the output; expected weighted_sum, "
            "followed by linear alone"
        )
    return step, after


def _output(body: Body, count: int) -> tuple[Float[Tensor, "h d w"], Float[Tensor, " d"]]:
    """What maps each head's features to the output, and the bias; identities without W_O."""
    projections = body.genome.projections
    weight = torch.eye(body.dim, dtype=torch.float64)
    bias = weight.new_zeros(body.dim)
    if projections.has_wo:
        weight, bias = body.linear("wo")
    if projections.merge == "sum":
        return weight.expand(count, -1, -1), bias
    return weight.reshape(body.dim, count, -1).transpose(0, 1), bias


def _with_messages(body: Body, aggregate: Step) -> Genome:
    """The genome with v as messages, summed over the heads and put out as they are."""
    old, index = body.genome, aggregate.index
    nodes = old.nodes[: index + 1]
    if not old.projections.has_wv:
        # Who reads the token itself as v has another name for it, where there is one.
        raw = next((s for s in ("k", "q") if not old.projections.has_projection(s)), "v")
        names: dict[Ref, Ref] = {"v": raw}
        nodes = tuple(replace(n, inputs=tuple(names.get(r, r) for r in n.inputs)) for n in nodes)
    projections = replace(
        old.projections, has_wv=True, has_wo=False, merge="sum", kv_heads=aggregate.heads
    )
    genome = replace(old, nodes=nodes, projections=projections)
    genome = genome.with_inputs(index, nodes[index].inputs[0], "v")
    check_readers(body, genome, index, "v")
    return genome
