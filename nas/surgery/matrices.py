"""An attention block as matrices: the maps from a token to heads, and replacement of the maps.

    y_h = W_h x + b_h = [W_h | b_h] (x, 1)

A map has the matrices [W_h | b_h] of all heads; without projection they select features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler import Plan, build_attention
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import Step, plan_as_written
from nas.genome import Genome, Ref
from nas.genome.primitives import Role

Affine = Float[Tensor, "h w d+1"]
_TOKENS: Final = 7
_MAGNITUDES: Final = (1e-3, 0.1, 1.0, 10.0)  # of tokens; sums of weights may depend on scores
_TOLERANCE: Final = 1e-9


def repeated(heads: Affine, count: int) -> Affine:
    """Return a map whose heads are repeated to ``count`` heads."""
    return heads.repeat_interleave(count // len(heads), dim=0)


def refusal(reason: str) -> GenomeError:
    """Return the error for a block that cannot be changed."""
    return GenomeError(f"the block cannot be merged: {reason}.")


class MatrixBlock(ReferenceAttention):
    """An attention block in float64 on the CPU; building it leaves torch's generators unchanged."""

    def __init__(self, plan: Plan, dim: int, heads: int, has_bias: bool) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(plan, dim, heads, has_bias)
        self.has_bias = has_bias
        self.double().eval()

    @classmethod
    def of(cls, block: Any) -> MatrixBlock:
        """Return a copy of a block that nas.build_attention made."""
        state, plan = block.state_dict(), plan_as_written(block.genome)
        matrices = cls(plan, block.dim, block.heads, False)
        if matrices.state_dict().keys() != state.keys():
            matrices = cls(plan, block.dim, block.heads, True)
        matrices.load_state_dict(state)
        return matrices

    def as_block(self, old: nn.Module) -> nn.Module:
        """Return this block's module with the precision, device, mode and back end of ``old``."""
        with torch.random.fork_rng(devices=[]):
            block = build_attention(
                *(self.plan, self.dim, self.heads),
                qkv_bias=self.has_bias,
                reference=isinstance(old, ReferenceAttention),
            )
        like = next(old.parameters(), torch.empty(0))
        block.to(like.device, like.dtype).load_state_dict(self.state_dict())
        return block.train(old.training)

    def score(self) -> tuple[Step, float]:
        """Return the scaled dot product and its scale; GenomeError for another score function."""
        scores = [s for s in self.plan.steps if s.role is Role.SCORE]
        if [s.primitive.name for s in scores] != ["scaled_dot_product"]:
            names = ", ".join(s.module for s in scores) or "nothing"
            raise refusal(f"{names} scores the pairs; expected one scaled_dot_product")
        rank: int = self.plan.sizes(scores[0], self.dim, self.heads, False)["rank"]
        return scores[0], rank**-0.5

    def linear(self, name: str) -> Float[Tensor, "o i+1"]:
        """Return the weight of a projection, with the bias, or zeros, as the last column."""
        module: Any = self.get_submodule(name)
        weight = module.weight.detach()
        bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach()
        return torch.cat((weight, bias.unsqueeze(1)), dim=1)

    def stream(self, ref: Ref) -> Affine:
        """Return the map to the heads of ``q``, ``k`` or ``v``; GenomeError for a node."""
        if not isinstance(ref, str):
            raise refusal(
                f"{self.plan.steps[ref].module} stands between the token and the operation; "
                "expected projections alone, since one matrix cannot hold anything else"
            )
        stream = next(s for s in self.plan.streams if s.name == ref)
        if stream.is_projected:
            weight = self.linear(f"w{ref}")
        else:
            weight = torch.eye(self.dim, self.dim + 1, dtype=torch.float64)
        return weight.view(stream.type.head_count(self.heads), -1, self.dim + 1)

    def rebuilt(self, genome: Genome, maps: Mapping[str, Affine]) -> MatrixBlock:
        """Return the block of a changed genome, with new maps and otherwise this block's weights.

        ``genome`` has the nodes of this block, with other operands. ``maps`` are those of the
        projections that change, by stream. Missing heads are repeated. A new bias is zero.
        GenomeError is raised if the weights of an operation do not fit the new heads.
        """
        plan, state, has_bias = plan_as_written(genome), self.state_dict(), self.has_bias
        for stream in (s for s in plan.streams if s.is_projected):
            heads = maps[stream.name] if stream.name in maps else self.stream(stream.name)
            weight = repeated(heads, stream.type.head_count(self.heads)).flatten(0, 1)
            has_bias |= bool(weight[:, -1].any())
            state[f"w{stream.name}.weight"] = weight[:, :-1]
            state[f"w{stream.name}.bias"] = weight[:, -1]
        block = MatrixBlock(plan, self.dim, self.heads, has_bias)
        zeros = {name: torch.zeros_like(weight) for name, weight in block.state_dict().items()}
        try:
            block.load_state_dict({name: state.get(name, zeros[name]) for name in zeros})
        except RuntimeError as error:
            raise refusal("the weights of an operation do not fit the new heads") from error
        return block

    def check_readers(self, index: int, *streams: str) -> None:
        """Raise GenomeError if a step other than number ``index`` reads one of these streams."""
        for step in self.plan.steps:
            unread = step.primitive.unread(step.params)
            read = [o.ref for o in step.operands if o.port.name not in unread and o.ref in streams]
            if read and step.index != index:
                raise refusal(
                    f"{read[0]} is read by {step.module} too; expected no other reader of a stream "
                    "that is merged"
                )


def mapped(weight: Float[Tensor, "*h v w"], first: Affine) -> Affine:
    """Return the composition of a map of a token with linear maps of the heads that follow it."""
    # Separate products: the rounding of the weights must not depend on the column of biases.
    return torch.cat((weight @ first[..., :-1], weight @ first[..., -1:]), dim=-1)


def agree(first: MatrixBlock, second: MatrixBlock) -> bool:
    """Return whether two blocks give equal outputs, without a mask and with a causal mask."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, _TOKENS, first.dim, generator=generator, dtype=torch.float64)
    causal = torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).tril()
    for magnitude in _MAGNITUDES:
        for mask in (None, causal):
            with torch.no_grad():
                expected, outputs = (f(magnitude * tokens, mask) for f in (first, second))
            tolerance = _TOLERANCE * float(expected.abs().max())
            if not torch.allclose(outputs, expected, rtol=0.0, atol=tolerance):
                return False
    return True
