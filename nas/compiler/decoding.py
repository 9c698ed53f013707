"""Token by token: a block continued from what it keeps of earlier tokens.

    decoder = Decoder(block)
    for token in x.split(1, dim=1):
        y = decoder.step(token)          # equal to the row of block(x, is_causal=True)

Decode in eval mode: in training a gate that warms up counts each step as a pass. What is kept is
what ``kv_cache_bytes_per_token`` counts: the streams from which keys and values
follow (those without projection share the token itself), and what is computed from more than its
own token's streams. Keys and values that follow from them are computed again at each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from nas.compiler.interpreter import merged, read_stream, with_heads
from nas.compiler.plan import make_plan
from nas.errors import GenomeError
from nas.genome import Genome
from nas.kernels.windows import in_window

if TYPE_CHECKING:
    from collections.abc import Collection

    from nas.compiler.plan import Plan, Step
    from nas.genome import Ref


def kept_for_later(plan: Plan, without: Collection[int] = ()) -> set[Ref]:
    """The streams, and the nodes, from which every ``key`` and ``values`` operand follows.

    Args:
        without: steps that hold a state instead.
    """
    sources: dict[Ref, set[Ref]] = {s.name: {s.name} for s in plan.streams}
    kept: set[Ref] = set()
    for step in plan.steps:
        for operand in step.operands:
            if operand.port.name in ("key", "values") and step.index not in without:
                kept |= sources[operand.ref]
        if step.makes_tokens and (step.is_paired or "x" in step.primitive.extras):
            sources[step.index] = {step.index}
        else:
            sources[step.index] = set().union(*(sources[o.ref] for o in step.operands))
    return kept


class Decoder:
    """A block of ``nas.build_attention`` with a memory.

    Attributes:
        length: tokens seen so far.
        cache: what is kept of them, by stream or variable; tokens are the axis before the last.

    Raises:
        GenomeError: the mechanism sees later tokens, or cannot be continued one token at a time.
    """

    def __init__(self, block: nn.Module) -> None:
        self.block = cast("Any", block)
        if not isinstance(getattr(block, "genome", None), Genome):
            raise GenomeError(
                f"{type(block).__name__} is no block that can be decoded; expected one of "
                "nas.build_attention (an exported class does not know its genome)."
            )
        self.plan = make_plan(self.block.genome)
        whole = {s.primitive.name for s in self.plan.steps if s.primitive.needs_all_tokens}
        if self.plan.unsafe or whole:
            names = ", ".join(sorted({*self.plan.unsafe, *whole}))
            raise GenomeError(
                f"{names}: reads neighbouring or later tokens, so that no cache of single tokens "
                "continues it; expected a mechanism without."
            )
        self.kept = kept_for_later(self.plan)
        self.raw = {s.name for s in self.plan.streams if not s.is_projected}
        self.modules = {step.index: self._module(step) for step in self.plan.steps}
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.length = 0
        self.cache: dict[str, Tensor] = {}

    def step(self, x: Tensor) -> Tensor:
        """The outputs of the next tokens, (b, m, dim) to (b, m, dim), m one or more.

        Raises:
            ValueError: another number of sequences than before.
        """
        batch = next((kept.shape[0] for kept in self.cache.values()), x.shape[0])
        if x.shape[0] != batch:
            raise ValueError(f"{x.shape[0]} sequences after {batch}; expected reset() before")
        before = self.length, dict(self.cache)
        try:
            return self._step(x)
        except BaseException:
            self.length, self.cache = before  # what could not be finished leaves no trace
            raise

    def _step(self, x: Tensor) -> Tensor:
        start, self.length = self.length, self.length + x.shape[1]
        now: dict[Ref, Tensor] = {
            stream.name: read_stream(self.block, stream, x) for stream in self.plan.streams
        }
        if self.kept & self.raw:
            self._keep("x", x)
        for name in self.kept - self.raw:
            if name in now:
                self._keep(str(name), now[name])
        mask = self._mask(start, x.device)
        for step in self.plan.steps:
            now[step.index] = self._call(step, now, x, mask, start)
            if step.index in self.kept:
                self._keep(step.variable, now[step.index])
        return merged(self.block, self.plan, now[self.plan.steps[-1].index])

    def _call(
        self, step: Step, now: dict[Ref, Tensor], x: Tensor, mask: Tensor, start: int
    ) -> Tensor:
        """One call for the new tokens: their rows, against the keys of all."""
        operands = []
        for operand in step.operands:
            is_past = operand.port.name in ("key", "values")
            value = self._history(operand.ref) if is_past else now[operand.ref]
            operands.append(with_heads(self.block, value, operand, step))
        given = {"x": x, "mask": mask if step.is_paired else None}
        extras: dict[str, Any] = {name: given[name] for name in step.primitive.extras}
        if step.primitive.is_positional:
            extras["start"] = start
        result: Tensor = self.modules[step.index](*operands, **extras)
        return result

    def _history(self, ref: Ref) -> Tensor:
        """A stream or node at every token so far: kept, or computed from what is."""
        if ref in self.raw:
            (stream,) = (s for s in self.plan.streams if s.name == ref)
            return read_stream(self.block, stream, self.cache["x"])
        if ref in self.kept:
            name = ref if isinstance(ref, str) else self.plan.steps[ref].variable
            return self.cache[name]
        assert isinstance(ref, int), "a projected stream that keys follow from is kept"
        step = self.plan.steps[ref]
        operands = [with_heads(self.block, self._history(o.ref), o, step) for o in step.operands]
        extras = {name: None for name in step.primitive.extras if name == "mask"}
        result: Tensor = self.modules[ref](*operands, **extras)
        return result

    def _keep(self, name: str, new: Tensor) -> None:
        """Append to a memory."""
        old = self.cache.get(name)
        self.cache[name] = new if old is None else torch.cat((old, new), dim=-2)

    def _mask(self, start: int, device: torch.device) -> Tensor:
        """Which of all tokens so far the new ones may see."""
        keys = torch.arange(self.length, device=device)
        seen = self.plan.genome.visibility
        if seen.window is None:
            return keys[None, :] <= keys[start:, None]
        return in_window(keys[start:], keys, seen.window, seen.global_tokens, is_causal=True)

    def _module(self, step: Step) -> nn.Module:
        """The block's own, or where its call is fused one made anew: those have no weights."""
        own = getattr(self.block, step.module, None)
        if own is not None:
            assert isinstance(own, nn.Module)
            return own
        sizes = self.plan.sizes(step, self.block.dim, self.block.heads, False)
        return step.primitive.module(**sizes, **step.params)
