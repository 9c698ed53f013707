"""Build a block anew from a changed genome, with every weight carried over or replaced.

What the change leaves alone keeps its weights, whatever place the canonical order gives it; a
projection whose heads become more is repeated; a bias that the old block did not have is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from nas.canonical import canonicalise, digest
from nas.compiler import Plan, build_attention, make_plan
from nas.compiler.interpreter import ReferenceAttention
from nas.genome import Genome
from nas.primitives import get
from nas.surgery.affine import Affine, Body, device_of, weights_of
from nas.types import infer


def check_readers(body: Body, genome: Genome, stream: str, at: int) -> None:
    """Refuse where another node than ``at`` reads the numbers of a stream that is about to change.

    Raises:
        GenomeError: one does; the message names it.
    """
    signatures = infer(genome).signatures
    for index in genome.live():
        node, primitive = genome.nodes[index], get(genome.nodes[index].op)
        unread = primitive.unread(primitive.full(node.param_dict()))
        pairs = zip(node.inputs, signatures[index].inputs, strict=False)
        read = {ref for ref, port in pairs if port.name not in unread}
        if index != at and stream in read:
            raise body.refusal(
                f"{stream} is read by {node.op}_{index} too; expected no other reader of a stream "
                "that is merged or factored"
            )


def rebuild(
    body: Body,
    genome: Genome,
    maps: Mapping[str, Affine],
    output: tuple[Tensor, Tensor] | None = None,
) -> nn.Module:
    """A new block, of the old one's precision, device, mode and back end.

    Args:
        genome: its nodes stand where they stand in the body's, though some may be dead.
        maps: the projections that change, by stream.
        output: weight (d, m) and bias (d) of W_O, where that changes.

    Raises:
        GenomeError: an operation's own weights do not fit the new head counts.
    """
    plan = make_plan(canonicalise(genome))  # without its dead nodes, which need not type-check
    wanted = {s.name: s.type.head_count(body.heads) for s in plan.streams if s.is_projected}
    given = {n: (maps.get(n) or body.stream(n)).repeat(h) for n, h in wanted.items()}
    block = _empty(body, plan, has_bias=any(bool(m.bias.any()) for m in given.values()))
    for name, mapped in given.items():
        _set(block.get_submodule(f"w{name}"), mapped.weight.flatten(0, 1), mapped.bias.flatten())
    if plan.genome.projections.has_wo:
        _set(block.get_submodule("wo"), *(output or weights_of(body.block.get_submodule("wo"))))
    _carry(body, genome, plan, block)
    return block


def _empty(body: Body, plan: Plan, has_bias: bool) -> nn.Module:
    """A block whose weights do not matter yet; no random number is used up."""
    old, has_bias = body.block, has_bias or body.has_qkv_bias()
    is_reference = isinstance(old, ReferenceAttention)
    with torch.random.fork_rng(devices=[]):
        block = build_attention(
            plan.genome, body.dim, body.heads, qkv_bias=has_bias, reference=is_reference
        )
    dtype = next((p.dtype for p in old.parameters()), torch.get_default_dtype())
    return block.to(device_of(old), dtype).train(old.training)


def _set(module: nn.Module, weight: Tensor, bias: Tensor) -> None:
    assert isinstance(module, nn.Linear)
    with torch.no_grad():
        module.weight.copy_(weight)
        if module.bias is not None:
            module.bias.copy_(bias)


def _carry(body: Body, genome: Genome, plan: Plan, block: nn.Module) -> None:
    """Copy the weights of operations, found again by the digest of what they compute."""
    places = {_key(plan.genome, i, plan): step.module for i, step in enumerate(plan.steps)}
    known = dict(body.block.named_children())
    seen: set[str] = set()
    for index in genome.live():
        name = body.plan.steps[index].module
        if name not in known or not known[name].state_dict():
            continue
        key = _key(genome, index, plan)
        if key in seen:
            raise body.refusal(
                f"{name} has a twin that reads the same; expected operations whose weights can be "
                "told apart by what they compute"
            )
        seen.add(key)
        _copy(body, name, known[name], block.get_submodule(places[key]))


def _key(genome: Genome, index: int, plan: Plan) -> str:
    """The digest of one node and what it reads, under the new projections."""
    nodes = genome.nodes[: index + 1]
    return digest(replace(genome, nodes=nodes, projections=plan.genome.projections))


def _copy(body: Body, name: str, old: nn.Module, new: nn.Module) -> None:
    known = old.state_dict()
    for key, tensor in new.state_dict().items():
        if key in known and known[key].shape != tensor.shape:
            raise body.refusal(
                f"{name} has weights of shape {tuple(known[key].shape)} for its heads; expected "
                f"{tuple(tensor.shape)}, as many as the new form has"
            )
        assert key in known or key.endswith("bias"), "a block gains no weights but biases"
        tensor.copy_(known[key] if key in known else torch.zeros_like(tensor))
