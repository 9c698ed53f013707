"""The parts of a block that are affine in the token: one matrix and one shift for each head.

    y_h = W_h x + b_h

A projection is such a part. So is a stream without projection (W_h picks the head's features, or
is the identity where every head sees the whole token), a ``linear`` of one and an ``add`` of two.
Anything else (a rotation by position, a norm, an activation) stands between the matrices around
it, and nothing can be merged across it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.compiler import Plan, make_plan
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import Step
from nas.errors import GenomeError
from nas.genome import Genome, Ref
from nas.primitives import Role


@dataclass(frozen=True)
class Affine:
    """y_h = weight_h x + bias_h, in float64."""

    weight: Float[Tensor, "h w d"]
    bias: Float[Tensor, "h w"]

    def repeat(self, heads: int) -> Affine:
        """The same map for more heads: head i has that of head i // (heads / own heads)."""
        times = heads // len(self.weight)
        assert times * len(self.weight) == heads, "head counts meet where their ratio is whole"
        return Affine(*(t.repeat_interleave(times, dim=0) for t in (self.weight, self.bias)))

    def then(self, weight: Float[Tensor, "*h v w"]) -> Affine:
        """The map followed by a linear one, its own for each head or one for all."""
        return Affine(weight @ self.weight, (weight @ self.bias.unsqueeze(-1)).squeeze(-1))

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.weight + other.weight, self.bias + other.bias)


@dataclass(frozen=True)
class Body:
    """A block opened up: its weights beside the plan that they belong to.

    Attributes:
        where: what is being done to it, the first words of every refusal.
    """

    block: nn.Module
    plan: Plan
    dim: int
    heads: int
    where: str

    @classmethod
    def of(cls, block: nn.Module, where: str) -> Body:
        """Open a block.

        Raises:
            GenomeError: it was not built by ``nas.build_attention``.
        """
        genome, dim, heads = (getattr(block, name, None) for name in ("genome", "dim", "heads"))
        if not (isinstance(genome, Genome) and isinstance(dim, int) and isinstance(heads, int)):
            raise GenomeError(
                f"{where}: found {type(block).__name__}, which is no whole block; expected one "
                "made by nas.build_attention."
            )
        return cls(block, make_plan(genome), dim, heads, where)

    def refusal(self, reason: str) -> GenomeError:
        """The error that says why this block cannot be changed so."""
        return GenomeError(f"{self.where}: {reason}.")

    def score(self) -> Step:
        """The only score, a scaled dot product."""
        scores = [s for s in self.plan.steps if s.role is Role.SCORE]
        found = ", ".join(s.module for s in scores) or "nothing"
        if len(scores) != 1 or scores[0].primitive.name != "scaled_dot_product":
            raise self.refusal(
                f"{found} scores the pairs; expected one scaled_dot_product, since patterns are "
                "matched by dot products alone"
            )
        return scores[0]

    def scale(self, step: Step) -> float:
        """What the products of a scaled dot product are multiplied with."""
        # From the plan: generated source may fuse the call, and then no module holds the scale.
        scale: float = self.plan.sizes(step, self.dim, self.heads, False)["rank"] ** -0.5
        return scale

    def has_qkv_bias(self) -> bool:
        """Whether the block was built with ``qkv_bias``."""
        with torch.device("meta"):
            unbiased = ReferenceAttention(self.plan, self.dim, self.heads)
        return set(self.block.state_dict()) != set(unbiased.state_dict())

    def reference(self) -> ReferenceAttention:
        """The same block node by node, in float64 on the processor."""
        with torch.random.fork_rng(devices=[]):
            built = ReferenceAttention(self.plan, self.dim, self.heads, self.has_qkv_bias())
        built.double().load_state_dict(self.block.state_dict())
        return built

    def count(self, step: Step) -> int:
        """How many heads a step works on."""
        return self.plan.output._replace(heads=step.heads).head_count(self.heads)

    def stream(self, name: str) -> Affine:
        """A stream as a map of the token."""
        found = next(s for s in self.plan.streams if s.name == name)
        shape = found.type.head_count(self.heads), found.type.channels(self.dim, self.heads)
        if not found.is_projected:
            whole = torch.eye(self.dim, dtype=torch.float64, device=device_of(self.block))
            return Affine(whole.view(*shape, self.dim), whole.new_zeros(shape))
        weight, bias = weights_of(self.block.get_submodule(f"w{name}"))
        return Affine(weight.view(*shape, self.dim), bias.view(shape))

    def affine(self, ref: Ref, role: str) -> Affine:
        """What a node or stream holds, as a map of the token.

        Args:
            role: what it is used as, for the refusal: "queries", "keys", "values".

        Raises:
            GenomeError: something that is not affine stands in between.
        """
        if isinstance(ref, str):
            return self.stream(ref)
        step = self.plan.steps[ref]
        if step.primitive.name == "linear":
            weight, bias = weights_of(self.block.get_submodule(f"{step.module}.linear"))
            mapped = self.affine(step.operands[0].ref, role).then(weight)
            return Affine(mapped.weight, mapped.bias + bias)
        if step.primitive.name == "add":
            first, second = (self.affine(o.ref, role) for o in step.operands)
            return first.repeat(self.count(step)) + second.repeat(self.count(step))
        raise self.refusal(
            f"{step.module} stands between the token and the {role}; expected projections, linear "
            "and add alone, since one matrix cannot hold anything else"
        )


def weights_of(module: nn.Module) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"]]:
    """Weight and bias of a linear module in float64; a bias that it lacks is zero."""
    assert isinstance(module, nn.Linear)
    weight = module.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach().double()
    return weight, bias


def device_of(block: nn.Module) -> torch.device:
    """Where a block's weights are; the processor for a block without any."""
    return next((p.device for p in block.parameters()), torch.device("cpu"))
