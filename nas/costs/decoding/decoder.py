"""Decoding token by token, from a cache of earlier tokens.

    decoder = Decoder(block)
    for token in x.split(1, dim=1):
        y = decoder.step(token)          # equal to the row of block(x, is_causal=True)

Set the block to eval mode before decoding. In training mode, a gate that opens during training
would count every decoding step as a training step. The cost ``kv_cache_bytes_per_token`` is the
size of the cache; see nas.costs.decoding.memory.
"""

from __future__ import annotations

import sys
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler.interpreter import merged, read_stream, with_heads
from nas.compiler.kernels.means import by_last, with_ones
from nas.compiler.kernels.runtime import repeat_heads
from nas.compiler.kernels.windows import in_window
from nas.compiler.plan import Operand, Step, make_plan
from nas.costs.decoding.memory import check_decodable, memory_of, shares_heads
from nas.costs.decoding.sums import continued, continued_with_gates, features
from nas.genome import Genome, ModelSizes, Ref
from nas.genome.primitives.factors import Weights

SMALLEST_ROOM: Final = 16  # least spare capacity of a buffer, in tokens
ROOM_SHARE: Final = 8  # spare capacity is the number of cached tokens divided by this


class Decoder:
    """Computes the outputs of a block token by token, with a cache of earlier tokens.

    Args:
        block: a block made by ``nas.build_attention``.
        context: the number of tokens at which the cache shall be smallest; None for very many
            tokens. Linear attention and means use running sums, whose size is constant, if these
            take less memory at ``context`` tokens than one cached row per token.

    Attributes:
        length: the number of tokens so far.
        cache: the cached tensors by name. Tensors with a row per token have the tokens on the axis
            before the last. They are views of larger buffers, unless the mechanism has a window.
            The spare capacity of a buffer is at most an eighth of its tokens, or 16 tokens if that
            is more. A buffer that is enough for ``context`` tokens is not larger.

        states: the states of steps that mix a token with earlier ones, by index of the step.

    Raises:
        GenomeError: the block was not made by ``nas.build_attention``, or its mechanism sees later
            tokens or needs all tokens at once.
    """

    def __init__(self, block: nn.Module, context: int | None = None) -> None:
        self.block = cast("Any", block)
        if not isinstance(getattr(block, "genome", None), Genome):
            raise GenomeError(
                f"{type(block).__name__} is no block that can be decoded; expected one of "
                "nas.build_attention (an exported class does not know its genome)."
            )
        self.plan = make_plan(self.block.genome)
        check_decodable(self.plan)
        self.context = context
        sizes = ModelSizes(self.block.dim, self.block.heads, 1, context or sys.maxsize)
        self.memory = memory_of(self.plan, sizes)
        self.modules = {step.index: self._module(step) for step in self.plan.steps}
        self._names = self.memory.names
        self._cached = set(self._names.values())
        self.reset()

    def reset(self) -> None:
        """Clear the cache."""
        self.length = 0
        self.cache: dict[str, Tensor] = {}
        self.states: dict[int, tuple[Tensor, ...]] = {}
        self._buffers: dict[str, Tensor] = {}

    def step(self, x: Tensor) -> Tensor:
        """Return the outputs (b, m, dim) of the next m tokens (b, m, dim), without gradients.

        A failed step changes nothing.

        Raises:
            ValueError: the number of sequences b differs from the previous step.
        """
        kept = (*self.cache.values(), *(each[0] for each in self.states.values()))
        batch = next((tensor.shape[0] for tensor in kept), x.shape[0])
        if x.shape[0] != batch:
            raise ValueError(f"{x.shape[0]} sequences after {batch}; expected reset() before")
        before = self.length, dict(self.cache), dict(self.states)
        try:
            with torch.no_grad():
                return self._step(x)
        except BaseException:
            self.length, self.cache, self.states = before
            raise

    def fill_cache(self, tokens: int) -> None:
        """Fill the cache with ``tokens`` copies of the last token, to time the next step."""
        for name in self._cached:
            last = self.cache.pop(name)[..., -1:, :]
            self._keep(name, last.repeat_interleave(self.memory.held(tokens), dim=-2))
        self.length = tokens

    def _step(self, x: Tensor) -> Tensor:
        start, held = self.length, self.memory.held(self.length)
        self.length += x.shape[1]
        self._parts = self._places(held, start - held, x.shape[1])
        results: dict[Ref, Tensor] = {
            stream.name: read_stream(self.block, stream, x) for stream in self.plan.streams
        }
        if self.memory.raw:
            self._keep("x", x)
        for ref in self.memory.rows & results.keys() - self.memory.raw:
            self._keep(self._names[ref], results[ref])
        mask = self._mask(start, x)
        for step in self.plan.steps:
            if step.index in self.memory.sums:
                results[step.index] = self._summed(step, results, start)
            elif step.index in self.memory.called:
                results[step.index] = self._call(step, results, x, mask, start)
            if step.index in self._names:
                self._keep(step.variable, results[step.index])
        for name in self._cached:
            self._forget(name)
        return merged(self.block, self.plan, results[self.plan.steps[-1].index])

    def _call(
        self, step: Step, results: dict[Ref, Tensor], x: Tensor, mask: Tensor | None, start: int
    ) -> Tensor:
        read = [self._history(o.ref) if o.port.is_past else results[o.ref] for o in step.operands]
        if shares_heads(step):
            return self._shared(step, *read)
        operands = [
            with_heads(self.block, *pair, step) for pair in zip(read, step.operands, strict=True)
        ]
        available = {"x": x, "mask": mask if step.is_paired else None}
        extras: dict[str, Any] = {name: available[name] for name in step.primitive.extras}
        module = self.modules[step.index]
        if step.index in self.memory.states:
            extras.pop("mask", None)
            state = self.states.get(step.index)
            result, self.states[step.index] = cast("Any", module).advance(
                state, *operands, **extras
            )
            return cast("Tensor", result)
        if not step.primitive.is_positional:
            return cast("Tensor", module(*operands, **extras))
        if not step.is_paired:
            return cast("Tensor", module(*operands, **extras, start=start))
        # If tokens between two parts left the cache, positions count from each part's first key.
        parts = []
        for columns, place in self._parts:
            columns_of_operands = [
                _part(*pair, columns) for pair in zip(operands, step.operands, strict=True)
            ]
            if extras.get("mask") is not None:
                extras["mask"] = cast("Tensor", available["mask"])[..., columns]
            parts.append(module(*columns_of_operands, **extras, start=start - place))
        return torch.cat(parts, dim=-1)

    def _summed(self, step: Step, results: dict[Ref, Tensor], start: int) -> Tensor:
        """Return an aggregation's result for the new tokens, and update its running sums."""

        def read(reader: Step, operand: Operand, is_repeated: bool) -> Tensor:
            value = results[operand.ref]
            return with_heads(self.block, value, operand, reader) if is_repeated else value

        call, values = self.memory.sums[step.index], results[step.operands[1].ref]
        key = query = torch.ones_like(values[:, :1, :, :1])
        gates = None
        if call.call.scores:
            query, key, gates = features(call.call, self.block, self.modules, read)
        name, lowered = f"sums of {step.variable}", call.call
        values = with_ones(values) if lowered.is_ratio else values
        divide = lowered.weights is not Weights.SUM
        if gates is not None:
            sums: Any = self.states.get(step.index)
            out, self.states[step.index] = continued_with_gates(
                query, key, values, gates, sums, start, divide
            )
        else:
            before = self.cache.get(name)
            out, self.cache[name] = continued(query, key, values, before, start, divide)
        out = by_last(out) if lowered.is_ratio else out
        return repeat_heads(out, step.type.head_count(self.block.heads))

    def _shared(self, step: Step, rows: Tensor, past: Tensor) -> Tensor:
        """Return a step's product, in which several query heads share a head of keys or values.

        The rows of these query heads become rows of one head, so that shared heads are not copied.
        """
        batch, heads, new, width = rows.shape
        grouped = rows.reshape(batch, past.shape[1], -1, width)
        return cast("Tensor", self.modules[step.index](grouped, past)).view(batch, heads, new, -1)

    def _history(self, ref: Ref) -> Tensor:
        """Return a stream or the result of a step at all tokens in the cache.

        A value that is not cached is recomputed from cached values.
        """
        name = self._names.get(ref)
        if name == "x":
            (stream,) = (s for s in self.plan.streams if s.name == ref)
            return read_stream(self.block, stream, self.cache["x"])
        if name is not None:
            return self.cache[name]
        assert isinstance(ref, int), "a stream that keys follow from is kept"
        step = self.plan.steps[ref]
        operands = [with_heads(self.block, self._history(o.ref), o, step) for o in step.operands]
        extras = {name: None for name in step.primitive.extras if name == "mask"}
        module = self.modules[ref]
        if not step.primitive.is_positional:
            return cast("Tensor", module(*operands, **extras))
        parts = [
            module(*(x[..., columns, :] for x in operands), **extras, start=place)
            for columns, place in self._parts
        ]
        return torch.cat(parts, dim=-2)

    def _keep(self, name: str, new: Tensor) -> None:
        """Append rows to the cached tensor ``name``, in place if its buffer has capacity."""
        old = self.cache.get(name)
        if self.plan.is_windowed:
            self.cache[name] = new if old is None else torch.cat((old, new), dim=-2)
            return
        count = 0 if old is None else old.shape[-2]
        total = count + new.shape[-2]
        if old is None or self._buffers[name].shape[-2] < total:
            room = total + max(SMALLEST_ROOM, total // ROOM_SHARE)
            if self.context is not None and total <= self.context:
                room = min(room, self.context)
            self._buffers[name] = new.new_empty(*new.shape[:-2], room, new.shape[-1])
            if old is not None:
                self._buffers[name][..., :count, :] = old
        self._buffers[name][..., count:total, :] = new
        self.cache[name] = self._buffers[name][..., :total, :]

    def _forget(self, name: str) -> None:
        """Drop the cached rows of tokens that left the window."""
        rows, first = self.cache[name], self.plan.genome.visibility.global_tokens
        if over := rows.shape[-2] - self.memory.held(self.length):
            self.cache[name] = torch.cat((rows[..., :first, :], rows[..., first + over :, :]), -2)

    def _places(self, held: int, forgotten: int, new: int) -> list[tuple[slice, int]]:
        """Return the cached keys as slices of consecutive tokens, each with its first position.

        There are two slices if tokens between the global tokens and the window were dropped.

        Args:
            held: the number of tokens in the cache.
            forgotten: the number of tokens that were dropped.
            new: the number of new tokens.
        """
        first = self.plan.genome.visibility.global_tokens if forgotten else 0
        parts = [(slice(0, first), 0), (slice(first, held + new), first + forgotten)]
        return parts if first else parts[1:]

    def _mask(self, start: int, x: Tensor) -> Tensor | None:
        """Return the mask of cached tokens that each new token may see; None if it may see all."""
        visibility = self.plan.genome.visibility
        if visibility.window is None and x.shape[1] == 1:
            return None
        queries = torch.arange(start, self.length, device=x.device)
        keys = torch.cat(
            [torch.arange(p, p + s.stop - s.start, device=x.device) for s, p in self._parts]
        )
        if visibility.window is None:
            return keys[None, :] <= queries[:, None]
        return in_window(queries, keys, visibility.window, visibility.global_tokens, is_causal=True)

    def _module(self, step: Step) -> nn.Module:
        """Return the module of a step.

        A compiled block leaves out modules that it does not need and that have no weights. Such a
        module is built here.
        """
        if hasattr(self.block, step.module):
            return cast("nn.Module", getattr(self.block, step.module))
        sizes = self.plan.sizes(step, self.block.dim, self.block.heads, False)
        return step.primitive.module(**sizes, **step.params)


def _part(tokens: Tensor, operand: Operand, columns: slice) -> Tensor:
    """Return the part of an operand that belongs to a slice of the keys.

    An operand without an axis of keys is returned unchanged.
    """
    if operand.is_paired:
        return tokens[..., columns]
    return tokens[..., columns, :] if operand.port.is_past else tokens
