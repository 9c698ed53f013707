"""The core of an attention block: a genome's graph over streams that a host projected.

A host keeps its projections, norms, rotation and cache; scores, weights and aggregation are the
genome's. What the host does between scores and values is done where it does it: a softcap and an
additive mask between score and normaliser, dropout on the weights that meet the values. A window of
the genome narrows the host's mask. With a cache the queries are the last tokens of the keys: what
the graph reads as a key or as values is of all tokens, everything else of the new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.common.errors import GenomeError
from nas.compiler import Plan
from nas.compiler.kernels.runtime import repeat_heads
from nas.compiler.kernels.windows import in_window
from nas.compiler.plan import Step, plan_as_written
from nas.genome import Genome, Ref
from nas.genome.primitives import Kind, Role
from nas.genome.types import Type
from nas.surgery.hosted import PAST, hosted, is_past, sides
from nas.surgery.masks import adjusted

Rotate = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class HostSizes:
    """The sizes of a host's attention.

    Attributes:
        dim: features of the tokens that the queries are projected from.
        heads, kv_heads: of queries, and of keys and values, as the host has them.
        width: features of one head's queries and keys.
        has_bias: whether its projections have biases; a tail beside them then has one too.
        is_rotated: whether the host rotates queries and keys by position (RoPE).
        is_causal: whether it reads what is earlier only, and so may continue from a cache.
        is_sliding: whether that cache forgets the oldest tokens.
    """

    dim: int
    heads: int
    kv_heads: int
    width: int
    has_bias: bool = False
    is_rotated: bool = False
    is_causal: bool = False
    is_sliding: bool = False


class AttentionCore(nn.Module):
    """A mechanism on projected streams.

    Attributes:
        changes: what is other than before, a sentence each (``nas.surgery.conversion``).

    Raises:
        GenomeError: the genome does not exist at this size.
        ViolationError: the genome does not type-check.
    """

    def __init__(self, genome: Genome, sizes: HostSizes, changes: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.genome, self.sizes = hosted(genome, sizes.is_rotated), sizes
        self.changes = changes
        self._plan()
        for step in self.plan.steps:
            self.add_module(step.module, _build(step, sizes))

    def _plan(self) -> None:
        self.plan: Plan = plan_as_written(self.genome)
        now, past = sides(self.plan)
        self.is_split = not (now & set(PAST) or past - set(PAST))
        is_positional = any(
            s.primitive.is_positional and s.params.get("rope", True) for s in self.plan.steps
        )
        # Whether a query's place among the keys matters.
        self.needs_places = self.plan.is_windowed or is_positional or not self.is_split
        normalisers = {s.primitive.name for s in self.plan.steps if s.role is Role.NORMALIZE}
        # Softmax alone forgives a very small number in place of a hidden score.
        self.needs_mask = self.needs_places or normalisers != {"softmax"}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"plan": None}  # it holds functions, which no file can

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._plan()

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
        softcap: float | None = None,
        rotate: Rotate | None = None,
        is_causal: bool = False,
        is_crossed: bool = False,
    ) -> tuple[Float[Tensor, "b h n u"], Float[Tensor, "b r n m"] | None]:
        """Attend; returns the heads' outputs and the last weights that met values, after dropout.

        Args:
            q, k, v: as the host projected them, rotated where it does; where the genome's streams
                have more heads, each is repeated. The scores' scale is 1/sqrt(w): a host with
                another one scales q.
            x: the tokens that q was projected from.
            mask: True where attention is allowed, broadcastable to (b, h, n, m).
            bias: added to the scores, broadcastable to (b, h, n, m); heads that were pooled get the
                mean of theirs.
            dropout: rate at which weights are dropped, in training mode.
            softcap: scores become c tanh(scores / c) before the bias is added.
            rotate: the host's rotation of queries (b, any, n, w), where it has one, for whatever
                else of a query meets the rotated keys.
            is_causal: whether ``mask`` hides later tokens: windows then reach back alone, and fewer
                queries than keys are the last tokens (with a mask: each the last that it sees).
            is_crossed: whether keys are tokens of another sequence.

        Raises:
            ValueError: the mechanism has a window, or reads keys as queries, and the keys are
                another sequence's; it sees later tokens, and ``is_causal`` hides them; or it has
                other numbers of heads than the mask.
        """
        tokens, keys = x.shape[1], k.shape[2]
        is_crossed = is_crossed or (tokens != keys and not is_causal)
        self._check(mask, is_causal, is_crossed)
        start = 0 if is_crossed else self._start(mask, tokens, keys)
        given = {"q": q, "k": k, "v": v}
        streams = {s.name: self.repeated(given[s.name], s.type) for s in self.plan.streams}
        call = _Call(self, streams, x, keys, start, rotate)
        sight = self._sight(mask, tokens, keys, start, is_causal, x.device)
        weights = None
        for step in self.plan.steps:
            operands = [
                self.repeated(call.read(operand.ref, is_past(operand.port)), step.type)
                for operand in step.operands
            ]
            if step.role is Role.NORMALIZE:
                operands = [
                    adjusted(value, bias, softcap) if operand.is_paired else value
                    for value, operand in zip(operands, step.operands, strict=True)
                ]
            if (index := _weights_of(step)) is not None:
                weights = F.dropout(operands[index], dropout, self.training)
                operands[index] = weights
            # What mixes neighbours is not bound by the mechanism's own window.
            call.values[step.index] = call.run(step, operands, sight if step.is_paired else mask)
        return call.values[self.plan.steps[-1].index], weights

    def _check(self, mask: Tensor | None, is_causal: bool, is_crossed: bool) -> None:
        if is_causal and self.plan.unsafe:
            raise ValueError(f"{', '.join(self.plan.unsafe)} sees later tokens: not causal")
        if is_crossed and (self.plan.is_windowed or not self.is_split):
            raise ValueError(
                "the mechanism has a window, or reads keys as queries, and its keys are another "
                "sequence's: leave cross-attention out by `where`"
            )
        masked = mask.shape[1] if mask is not None and mask.dim() == 4 else 1
        paired = {s.type.head_count(self.sizes.heads) for s in self.plan.steps if s.is_paired}
        if masked > 1 and paired != {masked}:
            raise ValueError(
                f"the mask differs between {masked} heads, and the mechanism has "
                f"{', '.join(map(str, sorted(paired)))}: expected one mask for all"
            )

    def _start(self, mask: Tensor | None, tokens: int, keys: int) -> int:
        """The place of the first query among the keys."""
        if tokens == keys or mask is None or not self.needs_places:
            return keys - tokens
        # A cache of fixed size has room after the queries: each is the last that it sees.
        places = torch.arange(keys, device=mask.device)
        last = (mask * places).amax(dim=-1).reshape(-1, mask.shape[-2])
        return int((last - places[: mask.shape[-2]]).max())

    def _sight(
        self,
        mask: Tensor | None,
        tokens: int,
        keys: int,
        start: int,
        is_causal: bool,
        device: torch.device,
    ) -> Tensor | None:
        """The host's mask, within the window."""
        seen = self.plan.genome.visibility
        if seen.window is None:
            return mask
        places = torch.arange(keys, device=device)
        queries = torch.arange(start, start + tokens, device=device)
        near = in_window(queries, places, seen.window, seen.global_tokens, is_causal)
        return near if mask is None else mask & near

    def repeated(self, value: Tensor, wanted: Type) -> Tensor:
        """A value with as many heads as a type says."""
        return repeat_heads(value, wanted.head_count(self.sizes.heads))

    def extra_repr(self) -> str:
        """The sizes and what was changed, for ``print(model)``."""
        own = self.sizes
        sizes = f"heads={own.heads}, kv_heads={own.kv_heads}, width={own.width}"
        return "; ".join((sizes, *self.changes))


@dataclass
class _Call:
    """One pass: what the graph has computed so far, for the new tokens and for all."""

    core: AttentionCore
    streams: dict[str, Tensor]
    x: Tensor
    keys: int
    start: int
    rotate: Rotate | None

    def __post_init__(self) -> None:
        self.values: dict[Ref, Tensor] = {}
        self.past: dict[Ref, Tensor] = {}

    def read(self, ref: Ref, is_past: bool) -> Tensor:
        """A stream or node, at all tokens or at the new ones."""
        tokens = self.x.shape[1]
        if isinstance(ref, str):
            value = self.streams[ref]
            is_cut = not is_past and value.shape[2] == self.keys != tokens
            return value[:, :, self.start : self.start + tokens] if is_cut else value
        if not is_past or tokens == self.keys:
            return self.values[ref]
        if ref not in self.past:
            step = self.core.plan.steps[ref]
            operands = [
                self.core.repeated(self.read(operand.ref, True), step.type)
                for operand in step.operands
            ]
            extras = {name: None for name in step.primitive.extras if name == "mask"}
            self.past[ref] = self.core.get_submodule(step.module)(*operands, **extras)
        return self.past[ref]

    def run(self, step: Step, operands: list[Tensor], mask: Tensor | None) -> Tensor:
        """A step for the new tokens."""
        module: Any = self.core.get_submodule(step.module)
        if self.core.sizes.is_rotated and _has_rows(step):
            # Their queries hold rows of their own, which must turn as the host turned the keys.
            assert self.rotate is not None, "a host that rotates says how"
            rows, *rest = module.units(self.x)
            units = (_rotated(rows, self.rotate), *rest)
            return cast("Tensor", module.score(*operands, units))
        extras: dict[str, Any] = {"x": self.x, "mask": mask}
        wanted = {name: extras[name] for name in step.primitive.extras}
        if step.primitive.is_positional:
            wanted["start"] = self.start
        return cast("Tensor", module(*operands, **wanted))


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
        "heads": step.type.head_count(sizes.heads),
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
