"""A block opened up: what it does to a token as matrices, and the block built anew from others.

    y_h = W_h x + b_h

Some parts are affine in the token, with one matrix and one shift for each head: a projection, a
stream without projection (W_h picks the head's features, or is the identity where every head sees
the whole token), a ``linear`` of one and an ``add`` of two. Anything else (a rotation by position,
a norm, an activation) stands between the matrices around it, and nothing can be merged across it.
Whether a bias may be moved or left out is found by computing with it and without.
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
from nas.genome import Genome, Projections, Ref
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
        """The same map for more heads: head i has that of head i // (heads / own heads)."""
        times = heads // len(self.weight)
        assert times * len(self.weight) == heads, "head counts meet where their ratio is whole"
        return Affine(*(t.repeat_interleave(times, dim=0) for t in (self.weight, self.bias)))

    def then(self, weight: Float[Tensor, "*h v w"]) -> Affine:
        """The map followed by a linear one, its own for each head or one for all."""
        return Affine(weight @ self.weight, (weight @ self.bias.unsqueeze(-1)).squeeze(-1))

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.weight + other.weight, self.bias + other.bias)


class Body(ReferenceAttention):
    """A block node by node, in float64 on the processor; no random number is used up.

    Attributes:
        has_bias: whether it is built with ``qkv_bias``.
        where: what is being done to it, the first words of every refusal.
    """

    def __init__(self, plan: Plan, dim: int, heads: int, has_bias: bool, where: str) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(plan, dim, heads, has_bias)
        self.has_bias, self.where = has_bias, where
        self.double().eval()

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
        state, plan = block.state_dict(), make_plan(genome)
        body = cls(plan, dim, heads, False, where)
        if body.state_dict().keys() != state.keys():
            body = cls(plan, dim, heads, True, where)
        body.load_state_dict(state)
        return body

    def as_block(self, old: nn.Module) -> nn.Module:
        """The body as a block of the old one's precision, device, mode and back end."""
        is_reference = isinstance(old, ReferenceAttention)
        with torch.random.fork_rng(devices=[]):
            block = build_attention(
                self.plan, self.dim, self.heads, qkv_bias=self.has_bias, reference=is_reference
            )
        like = next(old.parameters(), torch.empty(0))
        block.to(like.device, like.dtype).load_state_dict(self.state_dict())
        return block.train(old.training)

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
        scale: float = self.plan.sizes(step, self.dim, self.heads, False)["rank"] ** -0.5
        return scale

    def count(self, step: Step) -> int:
        """How many heads a step works on."""
        return step.type.head_count(self.heads)

    def linear(self, name: str) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"]]:
        """Weight and bias of a linear module; a bias that it lacks is zero."""
        module = self.get_submodule(name)
        assert isinstance(module, nn.Linear)
        weight, bias = module.weight.detach(), module.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()

    def stream(self, name: str) -> Affine:
        """A stream as a map of the token."""
        found = next(s for s in self.plan.streams if s.name == name)
        shape = found.type.head_count(self.heads), found.type.channels(self.dim, self.heads)
        if not found.is_projected:
            whole = torch.eye(self.dim, dtype=torch.float64)
            return Affine(whole.view(*shape, self.dim), whole.new_zeros(shape))
        weight, bias = self.linear(f"w{name}")
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
            weight, bias = self.linear(f"{step.module}.linear")
            mapped = self.affine(step.operands[0].ref, role).then(weight)
            return Affine(mapped.weight, mapped.bias + bias)
        if step.primitive.name == "add":
            first, second = (self.affine(o.ref, role) for o in step.operands)
            return first.repeat(self.count(step)) + second.repeat(self.count(step))
        raise self.refusal(
            f"{step.module} stands between the token and the {role}; expected projections, linear "
            "and add alone, since one matrix cannot hold anything else"
        )

    def rebuilt(
        self,
        genome: Genome,
        maps: Mapping[str, Affine],
        output: tuple[Tensor, Tensor] | None = None,
    ) -> Body:
        """The body of a changed genome, every weight carried over or replaced.

        A projection whose heads become more is repeated; a bias that was not there is zero.

        Args:
            genome: its nodes stand where they stand in this one's, though some may be dead.
            maps: the projections that change, by stream.
            output: weight (d, m) and bias (d) of W_O, where that changes.

        Raises:
            GenomeError: a changed stream has another reader, or an operation's own weights do not
                fit the new head counts.
        """
        plan = make_plan(genome.pruned())  # dead nodes need not type-check
        wanted = {s.name: s.type.head_count(self.heads) for s in plan.streams if s.is_projected}
        given = {n: (maps.get(n) or self.stream(n)).repeat(h) for n, h in wanted.items()}
        has_bias = self.has_bias or any(bool(m.bias.any()) for m in given.values())
        body = Body(plan, self.dim, self.heads, has_bias, self.where)
        for name, mapped in given.items():
            body._set(f"w{name}", mapped.weight.flatten(0, 1), mapped.bias.flatten())
        if plan.genome.projections.has_wo:
            body._set("wo", *(output or self.linear("wo")))
        self._carry_to(body, genome)
        return body

    def _set(self, name: str, weight: Tensor, bias: Tensor) -> None:
        module = self.get_submodule(name)
        assert isinstance(module, nn.Linear)
        with torch.no_grad():
            module.weight.copy_(weight)
            if module.bias is not None:
                module.bias.copy_(bias)

    def _carry_to(self, body: Body, genome: Genome) -> None:
        """Copy the weights of operations, found again by the digest of what they compute."""
        projections = body.genome.projections
        places = {_key(body.genome, s.index, projections): s.module for s in body.plan.steps}
        known = dict(self.named_children())
        seen: set[str] = set()
        for index in genome.live():
            name = self.plan.steps[index].module
            if name not in known or not known[name].state_dict():
                continue
            key = _key(genome, index, projections)
            if key in seen:
                raise self.refusal(
                    f"{name} has a twin that reads the same; expected operations whose weights can "
                    "be told apart by what they compute"
                )
            seen.add(key)
            self._copy(name, body.get_submodule(places[key]))

    def _copy(self, name: str, new: nn.Module) -> None:
        known = self.get_submodule(name).state_dict()
        for key, tensor in new.state_dict().items():
            if key in known and known[key].shape != tensor.shape:
                raise self.refusal(
                    f"{name} has weights of shape {tuple(known[key].shape)} for its heads; "
                    f"expected {tuple(tensor.shape)}, as many as the new form has"
                )
            assert key in known or key.endswith("bias"), "a block gains no weights but biases"
            tensor.copy_(known[key] if key in known else torch.zeros_like(tensor))


def check_readers(body: Body, genome: Genome, at: int, *streams: str) -> None:
    """Refuse where another node than ``at`` reads the numbers of streams that are to change.

    Raises:
        GenomeError: one does; the message names it.
    """
    signatures = infer(genome).signatures
    for index in genome.live():
        node, primitive = genome.nodes[index], get(genome.nodes[index].op)
        unread = primitive.unread(primitive.full(node.param_dict()))
        ports = zip(node.inputs, signatures[index].inputs, strict=False)
        for ref in sorted({str(ref) for ref, port in ports if port.name not in unread}):
            if index != at and ref in streams:
                raise body.refusal(
                    f"{ref} is read by {node.op}_{index} too; expected no other reader of a "
                    "stream that is merged or factored"
                )


def agree(
    one: Callable[[Tensor, Tensor | None], Tensor],
    other: Callable[[Tensor, Tensor | None], Tensor],
    dim: int,
) -> bool:
    """Whether two blocks give the same for random tokens that see all others, or earlier ones.

    Tokens are of several sizes: weights that large scores saturate sum to one when they need not.

    Args:
        one, other: called with tokens (b, n, dim) in float64 and a mask, True where allowed.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, _TOKENS, dim, generator=generator, dtype=torch.float64)
    causal = torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).tril()
    for size in _SIZES:
        for mask in (None, causal):
            with torch.no_grad():
                expected, found = one(size * tokens, mask), other(size * tokens, mask)
            tolerance = _TOLERANCE * float(expected.abs().max())
            if not torch.allclose(found, expected, rtol=0.0, atol=tolerance):
                return False
    return True


def _key(genome: Genome, index: int, projections: Projections) -> str:
    """The digest of one node and what it reads, under these projections."""
    return digest(replace(genome, nodes=genome.nodes[: index + 1], projections=projections))
