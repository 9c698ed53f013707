"""The core of an attention block: a genome's graph over streams that a host projected.

A host keeps its projections, norms, rotation and cache; scores, weights and aggregation are the
genome's. What the host does between scores and values is done where it does it: a softcap and an
additive mask between score and normaliser, dropout on the weights that meet the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import Plan, make_plan
from nas.compiler.plan import Step
from nas.errors import GenomeError
from nas.genome import Genome, Projections
from nas.kernels.runtime import repeat_heads
from nas.primitives import Kind, Role

Rotate = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class HostSizes:
    """The sizes of a host's attention.

    Attributes:
        dim: features of the tokens that the queries are projected from.
        heads, kv_heads: of queries, and of keys and values.
        width: features of one head's queries and keys.
        has_bias: whether its projections have biases; a tail beside them then has one too.
        is_rotated: whether the host rotates queries and keys by position (RoPE).
    """

    dim: int
    heads: int
    kv_heads: int
    width: int
    has_bias: bool = False
    is_rotated: bool = False


class AttentionCore(nn.Module):
    """A mechanism on projected streams.

    Raises:
        GenomeError: the genome wants other projections than a head's own q, k and v, or does not
            exist at this size.
        ViolationError: the genome does not type-check.
    """

    def __init__(self, genome: Genome, sizes: HostSizes) -> None:
        super().__init__()
        self.plan = make_plan(genome)
        _check_projections(self.plan)
        self.genome, self.sizes = self.plan.genome, sizes
        for step in self.plan.steps:
            self.add_module(step.module, _build(step, sizes))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"plan": None}  # it holds functions, which no file can

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.plan = make_plan(self.genome)

    def forward(
        self,
        q: Float[Tensor, "b h n w"],
        k: Float[Tensor, "b g m w"],
        v: Float[Tensor, "b g m u"],
        x: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        *,
        dropout: float = 0.0,
        softcap: float | None = None,
        rotate: Rotate | None = None,
    ) -> tuple[Float[Tensor, "b h n u"], Float[Tensor, "b h n m"] | None]:
        """Attend; returns the heads' outputs and the last weights that met values, after dropout.

        Args:
            q, k, v: as the host projected them, rotated where it does; head i reads the keys and
                values of group i // (h / g). The scores' scale is 1/sqrt(w): a host with another
                one scales q.
            x: the tokens that q was projected from.
            mask: True where attention is allowed, broadcastable to (b, h, n, m).
            bias: added to the scores, broadcastable to (b, h, n, m).
            dropout: rate at which weights are dropped, in training mode.
            softcap: scores become c tanh(scores / c) before the bias is added.
            rotate: the host's rotation of queries (b, any, n, w), where it has one, for whatever
                else of a query meets the rotated keys.
        """
        heads = self.sizes.heads
        extras = {"x": x, "mask": mask}
        values: dict[str, Any] = {"q": q, "k": repeat_heads(k, heads), "v": repeat_heads(v, heads)}
        weights = None
        for step in self.plan.steps:
            operands = [values[operand.variable] for operand in step.operands]
            if step.role is Role.NORMALIZE:
                operands = [_adjusted(scores, bias, softcap) for scores in operands]
            if (index := _weights_of(step)) is not None:
                weights = F.dropout(operands[index], dropout, self.training)
                operands[index] = weights
            values[step.variable] = self._run(step, operands, extras, rotate)
        return values[self.plan.steps[-1].variable], weights

    def _run(
        self, step: Step, operands: list[Tensor], extras: dict[str, Any], rotate: Rotate | None
    ) -> Tensor:
        module: Any = self.get_submodule(step.module)
        if self.sizes.is_rotated and _has_rows(step):
            # Their queries hold rows of their own, which must turn as the host turned the keys.
            assert rotate is not None, "a host that rotates says how"
            rows, *rest = module.units(extras["x"])
            units = (_rotated(rows, rotate), *rest)
            return cast("Tensor", module.score(*operands, units))
        wanted = {name: extras[name] for name in step.primitive.extras}
        return cast("Tensor", module(*operands, **wanted))

    def extra_repr(self) -> str:
        """The sizes, for ``print(model)``."""
        return f"heads={self.sizes.heads}, kv_heads={self.sizes.kv_heads}, width={self.sizes.width}"


def split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A mask as torch takes it, as (True where allowed, added to scores), None where it says none.

    A bool mask is True where attention is allowed; a float mask is added, and its -inf hide.
    """
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    hidden = mask.isneginf()
    return ~hidden, mask.masked_fill(hidden, 0.0)


def causal_mask(q: Tensor, k: Tensor) -> Bool[Tensor, "n m"]:
    """True where query i may see key j <= i, as ``is_causal`` has it in torch."""
    shape = (q.shape[2], k.shape[2])
    return torch.ones(shape, dtype=torch.bool, device=q.device).tril()


def scale_queries(q: Tensor, scale: float) -> Tensor:
    """Queries whose scores, divided by sqrt(w), are q·k times ``scale``."""
    factor = float(scale * q.shape[-1] ** 0.5)
    return q if abs(factor - 1.0) < 1e-12 else q * factor


def _adjusted(scores: Tensor, bias: Tensor | None, softcap: float | None) -> Tensor:
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return scores if bias is None else scores + bias


def _rotated(rows: Float[Tensor, "b h n l w"], rotate: Rotate) -> Float[Tensor, "b h n l w"]:
    """The rows of every query turned by that query's position."""
    aside = rows.transpose(2, 3)  # a rotation knows heads and tokens alone
    return rotate(aside.flatten(1, 2)).view(aside.shape).transpose(2, 3)


def _weights_of(step: Step) -> int | None:
    """Which operand holds weights, of a step that aggregates values with them."""
    kinds = [operand.port.kind for operand in step.operands]
    is_weighted = step.role is Role.AGGREGATE and Kind.WEIGHTS in kinds
    return kinds.index(Kind.WEIGHTS) if is_weighted else None


def _build(step: Step, sizes: HostSizes) -> nn.Module:
    known: dict[str, int | bool] = {
        "dim": sizes.dim,
        "heads": sizes.heads,
        "width": sizes.width,
        "rank": sizes.width,
        "bias": sizes.has_bias,
        "filtered": step.is_filtered,
    }
    params = dict(step.params)
    if sizes.is_rotated and _has_rows(step):
        params["rope"] = True  # its rows meet rotated keys; the host's rotation turns them
    try:
        return step.primitive.module(**step.bind(known), **params)
    except ValueError as error:
        raise GenomeError(f"dim {sizes.dim}, heads {sizes.heads}: {error}.") from None


def _has_rows(step: Step) -> bool:
    """Whether the queries of a primitive hold rows that it rotates itself, given ``rope``."""
    return "rope" in step.primitive.parameters


def _check_projections(plan: Plan) -> None:
    """Refuse a genome whose heads are not each its own q, k and v, concatenated, seeing all."""
    found, default = plan.genome.projections, Projections()
    other = [
        f"{f.name}: {getattr(found, f.name)}"
        for f in fields(Projections)
        if getattr(found, f.name) != getattr(default, f.name)
    ]
    if plan.is_windowed:
        other.append(f"window: {plan.genome.visibility.window}")
    if other:
        raise GenomeError(
            f"the mechanism has {', '.join(other)}; expected the projections and the sight of "
            "multi-head attention (all of q, k and v read and projected, all heads, concatenated, "
            "no window), since the model keeps its own."
        )
