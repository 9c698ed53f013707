"""A block as matrices: maps of a token to heads, and the block rebuilt from other matrices.

    y_h = W_h x + b_h

Affine in the token, with one matrix and bias for each head, are: a projection, a stream without
projection (W_h selects the head's features, or is the identity under ``raw: shared``), ``linear``
of an affine operand, and ``add`` of two. Other operations (a rotation, a norm, an activation)
prevent merging. Both blocks are computed to test whether a bias may be moved or dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler import Plan, build_attention, make_plan
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import Step
from nas.genome import Genome, Ref
from nas.genome.canonical import digest
from nas.genome.primitives import Role, get
from nas.genome.types import infer

_TOKENS: Final = 7
_SIZES: Final = (1e-3, 0.1, 1.0, 10.0)
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class Affine:
    """y_h = weight_h x + bias_h, in float64."""

    weight: Float[Tensor, "h w d"]
    bias: Float[Tensor, "h w"]

    def repeat(self, heads: int) -> Affine:
        """The map with each head repeated, up to ``heads`` heads."""
        times = heads // len(self.weight)
        assert times * len(self.weight) == heads, "type inference makes the ratio whole"
        return Affine(*(t.repeat_interleave(times, dim=0) for t in (self.weight, self.bias)))

    def then(self, weight: Float[Tensor, "*h v w"]) -> Affine:
        """The map followed by a linear map of each head, or of all."""
        return Affine(weight @ self.weight, (weight @ self.bias.unsqueeze(-1)).squeeze(-1))

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.weight + other.weight, self.bias + other.bias)


class MatrixBlock(ReferenceAttention):
    """The interpreter of a block in float64 on the CPU; it draws no random numbers.

    Attributes:
        has_bias: ``qkv_bias`` of the block.
        task: the name of the operation, for messages.
    """

    def __init__(self, plan: Plan, dim: int, heads: int, has_bias: bool, task: str) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(plan, dim, heads, has_bias)
        self.has_bias, self.task = has_bias, task
        self.double().eval()

    @classmethod
    def of(cls, block: nn.Module, task: str) -> MatrixBlock:
        """Read a block.

        Raises:
            GenomeError: it was not built by ``nas.build_attention``.
        """
        genome, dim, heads = (getattr(block, name, None) for name in ("genome", "dim", "heads"))
        if not (isinstance(genome, Genome) and isinstance(dim, int) and isinstance(heads, int)):
            raise GenomeError(
                f"{task}: found {type(block).__name__}; expected a block made by "
                "nas.build_attention."
            )
        state, plan = block.state_dict(), make_plan(genome)
        matrices = cls(plan, dim, heads, False, task)
        if matrices.state_dict().keys() != state.keys():
            matrices = cls(plan, dim, heads, True, task)
        matrices.load_state_dict(state)
        return matrices

    def as_block(self, old: nn.Module) -> nn.Module:
        """A block with the precision, device, mode and back end of ``old``."""
        with torch.random.fork_rng(devices=[]):
            block = build_attention(
                *(self.plan, self.dim, self.heads),
                qkv_bias=self.has_bias,
                reference=isinstance(old, ReferenceAttention),
            )
        like = next(old.parameters(), torch.empty(0))
        block.to(like.device, like.dtype).load_state_dict(self.state_dict())
        return block.train(old.training)

    def refusal(self, reason: str) -> GenomeError:
        """The error for a block that cannot be changed."""
        return GenomeError(f"{self.task}: {reason}.")

    def score(self) -> Step:
        """The scaled dot product, if it is the only score; GenomeError otherwise."""
        scores = [s for s in self.plan.steps if s.role is Role.SCORE]
        if [s.primitive.name for s in scores] != ["scaled_dot_product"]:
            names = ", ".join(s.module for s in scores) or "nothing"
            raise self.refusal(
                f"{names} scores the pairs; expected one scaled_dot_product, since patterns are "
                "matched by dot products alone"
            )
        return scores[0]

    def scale(self, step: Step) -> float:
        """The factor of a scaled dot product."""
        scale: float = self.plan.sizes(step, self.dim, self.heads, False)["rank"] ** -0.5
        return scale

    def count(self, step: Step) -> int:
        """The number of heads of a step."""
        return step.type.head_count(self.heads)

    def linear(self, name: str) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"]]:
        """Weight and bias of a linear module; a missing bias is zero."""
        module = self.get_submodule(name)
        assert isinstance(module, nn.Linear)
        weight, bias = module.weight.detach(), module.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()

    def stream(self, name: str) -> Affine:
        """A stream as a map of the token."""
        stream = next(s for s in self.plan.streams if s.name == name)
        shape = stream.type.head_count(self.heads), stream.type.channels(self.dim, self.heads)
        weight = torch.eye(self.dim, dtype=torch.float64)
        bias = weight.new_zeros(shape)
        if stream.is_projected:
            weight, bias = self.linear(f"w{name}")
        return Affine(weight.view(*shape, self.dim), bias.view(shape))

    def affine(self, ref: Ref, use: str) -> Affine:
        """A node or stream as a map of the token.

        Args:
            use: "queries", "keys" or "values", for the message.

        Raises:
            GenomeError: it is not affine.
        """
        if isinstance(ref, str):
            return self.stream(ref)
        step = self.plan.steps[ref]
        if step.primitive.name not in ("linear", "add"):
            raise self.refusal(
                f"{step.module} stands between the token and the {use}; expected projections, "
                "linear and add alone, since one matrix cannot hold anything else"
            )
        first, *rest = (self.affine(operand.ref, use) for operand in step.operands)
        if rest:
            return first.repeat(self.count(step)) + rest[0].repeat(self.count(step))
        weight, bias = self.linear(f"{step.module}.linear")
        mapped = first.then(weight)
        return Affine(mapped.weight, mapped.bias + bias)

    def rebuilt(
        self,
        genome: Genome,
        maps: Mapping[str, Affine],
        output: tuple[Tensor, Tensor] | None = None,
    ) -> MatrixBlock:
        """The block of a changed genome, with all other weights copied.

        A projection with more heads than before is repeated; a new bias is zero.

        Args:
            genome: with the nodes of this block's at their indices, though some may be dead.
            maps: projections that change, by stream.
            output: weight (d, m) and bias (d) of W_O, if it changes.

        Raises:
            GenomeError: the weights of an operation do not fit the new heads, or belong to one of
                two equal operations.
        """
        plan = make_plan(genome.pruned())  # dead nodes need not type-check
        streams = {
            s.name: (maps.get(s.name) or self.stream(s.name)).repeat(s.type.head_count(self.heads))
            for s in plan.streams
            if s.is_projected
        }
        has_bias = self.has_bias or any(bool(affine.bias.any()) for affine in streams.values())
        block = MatrixBlock(plan, self.dim, self.heads, has_bias, self.task)
        for name, affine in streams.items():
            block._set(f"w{name}", affine.weight.flatten(0, 1), affine.bias.flatten())
        if plan.genome.projections.has_wo:
            block._set("wo", *(output or self.linear("wo")))
        self._copy_operations(block, genome)
        return block

    def _set(self, name: str, weight: Tensor, bias: Tensor) -> None:
        module = self.get_submodule(name)
        assert isinstance(module, nn.Linear)
        with torch.no_grad():
            module.weight.copy_(weight)
            if module.bias is not None:
                module.bias.copy_(bias)

    def _copy_operations(self, block: MatrixBlock, genome: Genome) -> None:
        """Copy the weights of operations, matched by the digest of their computation."""

        def key(whole: Genome, index: int) -> str:
            # Both genomes are compared under the new projections.
            nodes = whole.nodes[: index + 1]
            return digest(replace(whole, nodes=nodes, projections=block.genome.projections))

        modules = {key(block.genome, step.index): step.module for step in block.plan.steps}
        children, copied = dict(self.named_children()), set()
        for index in genome.live():
            name = self.plan.steps[index].module
            old = children[name].state_dict() if name in children else {}
            if not old:
                continue
            if (digest_ := key(genome, index)) in copied:
                raise self.refusal(
                    f"{name} has an equal operation on the same inputs, so their weights cannot be "
                    "distinguished; expected operations that differ"
                )
            copied.add(digest_)
            for parameter, tensor in block.get_submodule(modules[digest_]).state_dict().items():
                value = old.get(parameter, torch.zeros_like(tensor))  # a new bias is zero
                if value.shape != tensor.shape:
                    raise self.refusal(
                        f"{name} has weights of shape {tuple(value.shape)} for its heads; expected "
                        f"{tuple(tensor.shape)}, as many as the new form has"
                    )
                tensor.copy_(value)


def check_readers(block: MatrixBlock, genome: Genome, at: int, *streams: str) -> None:
    """Raise GenomeError if a node other than ``at`` reads the values of these streams."""
    signatures = infer(genome).signatures
    for index in genome.live():
        node, primitive = genome.nodes[index], get(genome.nodes[index].op)
        unread = primitive.unread(primitive.full(node.param_dict()))
        ports = zip(node.inputs, signatures[index].inputs, strict=False)
        for ref in sorted({str(ref) for ref, port in ports if port.name not in unread}):
            if index != at and ref in streams:
                raise block.refusal(
                    f"{ref} is read by {node.op}_{index} too; expected no other reader of a "
                    "stream that is merged or factored"
                )


def agree(
    first: Callable[[Tensor, Tensor | None], Tensor],
    second: Callable[[Tensor, Tensor | None], Tensor],
    dim: int,
) -> bool:
    """Whether two blocks give equal outputs for random tokens, unmasked and causal.

    Tokens have several magnitudes, since sums of weights may depend on the scores.

    Args:
        first, second: called with tokens (b, n, dim) in float64 and a mask, True where allowed.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, _TOKENS, dim, generator=generator, dtype=torch.float64)
    causal = torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).tril()
    for size in _SIZES:
        for mask in (None, causal):
            with torch.no_grad():
                expected, outputs = first(size * tokens, mask), second(size * tokens, mask)
            tolerance = _TOLERANCE * float(expected.abs().max())
            if not torch.allclose(outputs, expected, rtol=0.0, atol=tolerance):
                return False
    return True
