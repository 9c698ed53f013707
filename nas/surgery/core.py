"""The core: a mechanism that attends with the projected queries, keys and values of a model.

The host is the attention module of the model. It computes projections, norms and rotation, and
keeps the cache. The core computes scores, weights and the aggregation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import Plan
from nas.compiler.kernels.attention import repeat_heads
from nas.compiler.masks import in_window
from nas.compiler.plan import Step, plan_as_written
from nas.genome import STREAMS, Genome, Ref
from nas.genome.primitives import Kind, Role
from nas.surgery.host_form import CACHED, host_form, stream_sides

Rotate = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class HostSizes:
    """The sizes of an attention module of an existing model; ``width`` is that of one head."""

    dim: int
    heads: int
    kv_heads: int
    width: int
    has_bias: bool = False  # of the projections, and then of a mechanism's linear maps
    is_rotated: bool = False  # queries and keys, by RoPE
    is_causal: bool = False  # reads only earlier tokens, so it may decode from a cache
    may_narrow: bool = False  # no norm, rotation or cache needs queries as wide as values


class AttentionCore(nn.Module):
    """A module that computes a mechanism from projected queries, keys and values.

    GenomeError is raised if the genome does not exist at this size; see ``host_form`` for others.
    """

    def __init__(self, genome: Genome, sizes: HostSizes) -> None:
        super().__init__()
        self.genome, self.sizes = host_form(genome, sizes.is_rotated), sizes
        for step in self.plan.steps:
            self.add_module(step.module, _build(self.plan, step, sizes))
        self.widths = dict.fromkeys(STREAMS, sizes.width)  # of one head
        for stream in self.plan.streams:
            self.widths[stream.name] = stream.type.channels(sizes.heads * sizes.width, sizes.heads)
        as_queries, as_keys = stream_sides(self.plan)
        is_split = not (as_queries & CACHED or as_keys - CACHED)
        self.can_be_cross = is_split and not self.plan.is_windowed
        # Whether the position of a query among the keys matters.
        self.needs_positions = not self.can_be_cross or any(
            s.primitive.is_positional and s.params.get("rope", True) for s in self.plan.steps
        )

    @cached_property
    def plan(self) -> Plan:
        """The plan of the genome."""
        return plan_as_written(self.genome)

    def __getstate__(self) -> dict[str, Any]:
        # A plan holds functions, which cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "plan"}

    def forward(
        self,
        q: Float[Tensor, "b s n w"],
        k: Float[Tensor, "b g m w"],
        v: Float[Tensor, "b t m u"],
        x: Float[Tensor, "b n d"],
        mask: Bool[Tensor, "..."] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        *,
        dropout: float = 0.0,
        rotate: Rotate | None = None,
        is_causal: bool = False,
        is_crossed: bool = False,
    ) -> tuple[Float[Tensor, "b h n u"], Float[Tensor, "b r n m"] | None]:
        """Return the outputs of the heads, and the weights of the last aggregation after dropout.

        With a cache, the queries belong to the last tokens of the keys. The weights are None if no
        aggregation reads weights.

        Args:
            q, k, v: the queries, keys and values that the host projected and rotated. Heads are
                repeated where the genome has more heads. Scores are scaled by 1/sqrt(w); a host
                with another scale must multiply q accordingly.
            x: the tokens that q was projected from.
            mask: True where attention is allowed, broadcastable to (b, h, n, m).
            bias: numbers added to the scores, broadcastable to (b, h, n, m).
            dropout: the rate at which weights are dropped, in training mode.
            rotate: function that rotates queries (b, any number of heads, n, w) like the host; the
                core applies it to the parts of queries that the mechanism computes.
            is_causal: whether ``mask`` hides later tokens. Windows then extend to the left only. If
                there are fewer queries than keys, the queries are the last tokens. If there is also
                a mask, the position of a query is the last key that the mask shows it.
            is_crossed: whether keys are tokens of another sequence.

        ValueError is raised if it cannot be cross-attention, or sees later tokens in causal calls.
        """
        tokens, keys = x.shape[1], k.shape[2]
        is_crossed = is_crossed or (tokens != keys and not is_causal)
        if is_causal and self.plan.unsafe:
            raise ValueError(f"{', '.join(self.plan.unsafe)} sees later tokens: not causal")
        if is_crossed and not self.can_be_cross:
            raise ValueError(
                "the mechanism has a window or reads keys as queries, and its keys are another "
                "sequence's: leave cross-attention out by `where`"
            )
        start = 0 if is_crossed else self._start(mask, tokens, keys)
        inputs = {"q": q, "k": k, "v": v}
        streams = {
            s.name: repeat_heads(inputs[s.name], s.type.head_count(self.sizes.heads))
            for s in self.plan.streams
        }
        call = _Call(self, streams, x, keys, start, rotate)
        windowed, weights = mask, None
        if (window := self.genome.visibility.window) is not None:
            queries = start + torch.arange(tokens, device=x.device)
            positions = torch.arange(keys, device=x.device)
            global_tokens = self.genome.visibility.global_tokens
            if global_tokens and mask is not None:  # they follow the padding of each sequence
                first = mask[..., -1, :].int().argmax(dim=-1, keepdim=True)
                queries, positions = queries - first, positions - first
            queries, positions = queries[..., :, None], positions[..., None, :]
            visible = in_window(queries, positions, window, global_tokens, is_causal)
            windowed = visible if mask is None else mask & visible
        for step in self.plan.steps:
            operands = call.operands(step)
            if step.role is Role.NORMALIZE and bias is not None:
                operands = [
                    value + bias if operand.is_paired else value
                    for value, operand in zip(operands, step.operands, strict=True)
                ]
            kinds = [operand.port.kind for operand in step.operands]
            if step.role is Role.AGGREGATE and Kind.WEIGHTS in kinds:
                index = kinds.index(Kind.WEIGHTS)
                operands[index] = weights = F.dropout(operands[index], dropout, self.training)
            # The window limits pairs; primitives that mix neighbouring tokens see the host's mask.
            call.values[step.index] = call.run(step, operands, windowed if step.is_paired else mask)
        return call.values[self.plan.steps[-1].index], weights

    def _start(self, mask: Tensor | None, tokens: int, keys: int) -> int | Tensor:
        if tokens == keys or mask is None or not self.needs_positions:
            return keys - tokens
        # A cache of fixed size has empty keys at its end: a query is the last key that it sees. The
        # result stays a tensor, because a number would make Python wait for the GPU in each layer.
        positions = torch.arange(keys, device=mask.device)
        last = (mask * positions).amax(dim=-1).reshape(-1, mask.shape[-2])
        return (last - positions[: mask.shape[-2]]).max()


@dataclass
class _Call:
    """The values of one forward pass; "all" tokens include those in the cache."""

    core: AttentionCore
    streams: dict[str, Tensor]
    x: Tensor  # the new tokens, those of the queries
    keys: int
    start: int | Tensor  # the position of the first query among the keys
    rotate: Rotate | None
    values: dict[Ref, Tensor] = field(default_factory=dict)  # of steps at the new tokens
    at_all: dict[Ref, Tensor] = field(default_factory=dict)  # of steps at all tokens

    def operands(self, step: Step, at_all: bool = False) -> list[Tensor]:
        """Return a step's operands, with heads repeated; keys and values are of all tokens."""
        count = step.type.head_count(self.core.sizes.heads)
        read = (self.read(o.ref, at_all or o.port.is_past) for o in step.operands)
        return [repeat_heads(value, count) for value in read]

    def read(self, ref: Ref, at_all: bool) -> Tensor:
        tokens = self.x.shape[1]
        if isinstance(ref, str):
            value = self.streams[ref]
            if at_all or value.shape[2] == tokens or value.shape[2] != self.keys:
                return value
            if isinstance(self.start, int):
                return value[:, :, self.start : self.start + tokens]
            return value.index_select(2, self.start + torch.arange(tokens, device=value.device))
        if not at_all or tokens == self.keys:
            return self.values[ref]
        if ref not in self.at_all:
            step = self.core.plan.steps[ref]
            extras = {name: None for name in step.primitive.extras if name == "mask"}
            module = self.core.get_submodule(step.module)
            self.at_all[ref] = module(*self.operands(step, at_all=True), **extras)
        return self.at_all[ref]

    def run(self, step: Step, operands: list[Tensor], mask: Tensor | None) -> Tensor:
        module: Any = self.core.get_submodule(step.module)
        if self.core.sizes.is_rotated and _rotates_itself(step):
            # Rows that the module adds to its queries must be rotated like the host's keys.
            assert self.rotate is not None, "a host with RoPE passes its rotation"
            rows, *rest = module.units(self.x)  # rows: (b, h, n, l, w)
            by_row = rows.transpose(2, 3)
            rotated = self.rotate(by_row.flatten(1, 2)).view(by_row.shape).transpose(2, 3)
            return cast("Tensor", module.score(*operands, (rotated, *rest)))
        available: dict[str, Any] = {"x": self.x, "mask": mask}
        extras = {name: available[name] for name in step.primitive.extras}
        if step.primitive.is_positional:
            extras["start"] = self.start
        return cast("Tensor", module(*operands, **extras))


def split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return a mask of torch as a bool mask, True where allowed, and a bias of the scores.

    ``mask`` is a bool mask, True where allowed, or a float mask that is added to the scores; -inf
    and the most negative finite number hide a key. A part is None if it has no effect.
    """
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= torch.finfo(mask.dtype).min
    return ~hidden, mask.masked_fill(hidden, 0.0)


def _build(plan: Plan, step: Step, sizes: HostSizes) -> nn.Module:
    # The width of a host's heads may differ from dim / heads.
    arguments = plan.sizes(step, sizes.heads * sizes.width, sizes.heads, sizes.has_bias)
    if "dim" in arguments:
        arguments["dim"] = sizes.dim
    if sizes.is_rotated and _rotates_itself(step):
        step = replace(step, params=step.params | {"rope": True})
    return step.build(arguments, sizes.dim, sizes.heads)


def _rotates_itself(step: Step) -> bool:
    return "rope" in step.primitive.parameters
