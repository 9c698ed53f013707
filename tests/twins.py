"""Test whether two genomes with the same weights compute the same function and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import plan_as_written
from nas.genome import Genome

MOST_TRIES = 4000


def plain_block(genome: Genome, dim: int, heads: int) -> ReferenceAttention:
    """The genome without simplification, as a block in float64 with random weights."""
    block = ReferenceAttention(plan_as_written(genome), dim, heads).double().eval()
    for name, buffer in block.named_buffers():
        buffer.fill_(30.0 if name.endswith("passes") else 1.0)
    for weights in block.parameters():
        nn.init.normal_(weights, std=0.7)
    return block


def are_twins(old: Genome, new: Genome, dim: int, heads: int, tokens: int) -> bool:
    """Whether the new genome with weights of the old genome computes the same function.

    A node can take the weights of a node with equal primitive, parameters and sizes. All
    assignments are tried, also with the projections of queries and keys exchanged.
    """
    before, after = plain_block(old, dim, heads), plain_block(new, dim, heads)
    x = torch.randn(2, tokens, dim, dtype=torch.float64)
    seen = torch.rand(tokens, tokens) < 0.7
    masks: list[dict[str, Any]] = [{}, {"attn_mask": seen | torch.eye(tokens, dtype=torch.bool)}]
    if not before.plan.unsafe:
        masks.append({"is_causal": True})
    for mapping in itertools.islice(_mappings(before, after), MOST_TRIES):
        for target, source in mapping.items():
            own = after.get_submodule(target)
            own.load_state_dict(before.get_submodule(source).state_dict())
        if all(_agree(before, after, mapping, x, mask) for mask in masks):
            return True
    return False


def _agree(
    before: nn.Module, after: nn.Module, mapping: dict[str, str], x: Tensor, mask: dict[str, Any]
) -> bool:
    with torch.no_grad():
        outputs = [block(x, **mask) for block in (before, after)]
    if not torch.allclose(*outputs, rtol=1e-9, atol=1e-9):
        return False
    pull = torch.randn_like(outputs[0])
    pulled = []
    for block in (before, after):
        block.zero_grad()
        tokens = x.clone().requires_grad_()
        (block(tokens, **mask) * pull).sum().backward()
        pulled.append(tokens.grad)
    if not torch.allclose(*pulled, rtol=1e-7, atol=1e-8):
        return False
    return all(_gradients_agree(before, after, mapping))


def _gradients_agree(
    before: nn.Module, after: nn.Module, mapping: dict[str, str]
) -> Iterator[bool]:
    """Whether remaining weights have equal gradients, and removed weights had no gradient."""
    kept = set(mapping.values())
    for target, source in mapping.items():
        pairs = zip(
            after.get_submodule(target).parameters(),
            before.get_submodule(source).parameters(),
            strict=True,
        )
        for own, other in pairs:
            zero = torch.zeros_like(own)
            grads = [zero if p.grad is None else p.grad for p in (own, other)]
            yield torch.allclose(*grads, rtol=1e-7, atol=1e-8)
    for name, child in before.named_children():
        if name not in kept:
            yield not any(
                p.grad is not None and (p.grad.abs() > 1e-9).any() for p in child.parameters()
            )


def _mappings(before: ReferenceAttention, after: ReferenceAttention) -> Iterator[dict[str, str]]:
    """All assignments of a module of the old block to each module of the new block."""
    groups = []
    old, new = _kinds(before), _kinds(after)
    for kind, targets in new.items():
        sources = itertools.permutations(old.get(kind, []), len(targets))
        groups.append([dict(zip(targets, found, strict=True)) for found in sources])
    for names in ({}, {"wq": "wk", "wk": "wq"}):
        streams = {name: names.get(name, name) for name in ("wq", "wk", "wv", "wo")}
        fixed = {a: b for a, b in streams.items() if getattr(after, a, None) is not None}
        if not all(_fits(after, a, before, b) for a, b in fixed.items()):
            continue
        for chosen in itertools.product(*groups):
            mapping = dict(fixed)
            for part in chosen:
                mapping |= part
            yield mapping


def _fits(after: nn.Module, target: str, before: nn.Module, source: str) -> bool:
    shapes = [getattr(b, n, None) for b, n in ((after, target), (before, source))]
    return shapes[1] is not None and shapes[0].weight.shape == shapes[1].weight.shape


def _kinds(block: ReferenceAttention) -> dict[Any, list[str]]:
    """The modules with weights, grouped by primitive, sizes and parameters."""
    found: dict[Any, list[str]] = {}
    for step in block.plan.steps:
        if any(True for _ in block.get_submodule(step.module).parameters()):
            sizes: dict[str, Any] = block.plan.sizes(step, block.dim, block.heads, False)
            if step.primitive.is_featurewise:  # heads and widths matter by their product alone
                weights = block.get_submodule(step.module).named_parameters()
                sizes = {name: tuple(weight.shape) for name, weight in weights}
            # The sizes contain the heads that a smallest head count gives.
            unread = {*step.primitive.unread(step.params), "least_heads"}
            params = {k: v for k, v in step.params.items() if k not in unread}
            key = step.primitive.name, str(sorted(sizes.items())), str(params)
            found.setdefault(key, []).append(step.module)
    return found
