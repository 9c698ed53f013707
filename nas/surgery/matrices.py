"""An attention block as matrices: the maps from a token to heads, and replacement of the maps.

    y_h = W_h x + b_h = [W_h | b_h] (x, 1)

A map is stored as the matrices [W_h | b_h] of all heads. Without projection, W_h selects the head's
features, or is the identity under ``raw: shared``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler import Plan, build_attention, make_plan
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import Step
from nas.genome import STREAMS, Genome, Ref
from nas.genome.canonical import old_names
from nas.genome.primitives import Role, full_params, get
from nas.genome.types import infer

Affine = Float[Tensor, "h w d+1"]
_TOKENS: Final = 7
_MAGNITUDES: Final = (1e-3, 0.1, 1.0, 10.0)
_TOLERANCE: Final = 1e-9


def repeated(heads: Affine, count: int) -> Affine:
    """Return a map whose heads are repeated to ``count`` heads."""
    return heads.repeat_interleave(count // len(heads), dim=0)


class MatrixBlock(ReferenceAttention):
    """An attention block in float64 on the CPU, executed by the reference interpreter.

    Building it leaves torch's random generators unchanged. ``has_bias`` says whether projections
    and linear operations have biases; error messages begin with ``task``, such as "merge".
    """

    def __init__(self, plan: Plan, dim: int, heads: int, has_bias: bool, task: str) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(plan, dim, heads, has_bias)
        self.has_bias, self.task = has_bias, task
        self.double().eval()

    @classmethod
    def of(cls, block: Any, task: str) -> MatrixBlock:
        """Return a copy of a block; raise GenomeError if nas.build_attention did not make it."""
        if not isinstance(getattr(block, "genome", None), Genome):
            raise GenomeError(
                f"{task}: found {type(block).__name__}; expected a block made by "
                "nas.build_attention."
            )
        state, plan = block.state_dict(), make_plan(block.genome)
        matrices = cls(plan, block.dim, block.heads, False, task)
        if matrices.state_dict().keys() != state.keys():
            matrices = cls(plan, block.dim, block.heads, True, task)
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

    def refusal(self, reason: str) -> GenomeError:
        """Return the error for a block that cannot be changed."""
        return GenomeError(f"{self.task}: {reason}.")

    def score(self) -> tuple[Step, float]:
        """Return the scaled dot product and its scale; GenomeError for another score function."""
        scores = [s for s in self.plan.steps if s.role is Role.SCORE]
        if [s.primitive.name for s in scores] != ["scaled_dot_product"]:
            names = ", ".join(s.module for s in scores) or "nothing"
            raise self.refusal(
                f"{names} scores the pairs; expected one scaled_dot_product, since patterns are "
                "matched by dot products alone"
            )
        rank: int = self.plan.sizes(scores[0], self.dim, self.heads, False)["rank"]
        return scores[0], rank**-0.5

    def count(self, step: Step) -> int:
        """Return the number of heads with which an operation (step) computes."""
        return step.type.head_count(self.heads)

    def linear(self, name: str) -> Float[Tensor, "o i+1"]:
        """Return the weight of a projection, with the bias as an additional last column.

        The column is zero if the projection has no bias.
        """
        module: Any = self.get_submodule(name)
        weight = module.weight.detach()
        bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach()
        return torch.cat((weight, bias.unsqueeze(1)), dim=1)

    def stream(self, ref: Ref, use: str = "heads") -> Affine:
        """Return the map of a token to the heads of ``q``, ``k`` or ``v``.

        Raises:
            GenomeError: ``ref`` is a node; ``use`` is what the message calls its reader.
        """
        if not isinstance(ref, str):
            raise self.refusal(
                f"{self.plan.steps[ref].module} stands between the token and the {use}; expected "
                "projections alone, since one matrix cannot hold anything else"
            )
        stream = next(s for s in self.plan.streams if s.name == ref)
        if stream.is_projected:
            weight = self.linear(f"w{ref}")
        else:
            weight = torch.eye(self.dim, self.dim + 1, dtype=torch.float64)
        return weight.view(stream.type.head_count(self.heads), -1, self.dim + 1)

    def rebuilt(
        self, genome: Genome, maps: Mapping[str, Affine], output: Tensor | None = None
    ) -> MatrixBlock:
        """Return the block of a changed genome, with new maps and otherwise this block's weights.

        If a projection gets more heads, its heads are repeated. A new bias is zero.

        Args:
            genome: the changed genome, which may have nodes that the output no longer depends on.
            maps: the new maps of the projections that change; the keys are ``q``, ``k`` and ``v``.
            output: the weight of W_O with its bias as the last column, if W_O changes.

        Raises:
            GenomeError: the weights of an operation do not fit the new heads, or two operations of
                one primitive have weights.
        """
        plan = make_plan(genome.pruned())  # dead nodes need not type-check
        names = {name: name for name in STREAMS} | old_names(genome)
        linears = {}
        for stream in (s for s in plan.streams if s.is_projected):
            name = names[stream.name]
            heads = maps[name] if name in maps else self.stream(name)
            # The normal form divides a single head of model width into all heads.
            heads = heads.reshape(-1, stream.type.channels(self.dim, self.heads), self.dim + 1)
            count = stream.type.head_count(self.heads)
            linears[f"w{stream.name}"] = repeated(heads, count).flatten(0, 1)
        has_bias = self.has_bias or any(bool(weight[:, -1].any()) for weight in linears.values())
        if plan.genome.projections.has_wo:
            linears["wo"] = self.linear("wo") if output is None else output
        block = MatrixBlock(plan, self.dim, self.heads, has_bias, self.task)
        with torch.no_grad():
            for name, weight in linears.items():
                module: Any = block.get_submodule(name)
                module.weight.copy_(weight[:, :-1])
                if module.bias is not None:
                    module.bias.copy_(weight[:, -1])
            self._copy_operations(block)
        return block

    def _weighted(self) -> dict[str, nn.Module]:
        """Return the operations that have weights, by the name of their primitive."""
        modules: dict[str, nn.Module] = {}
        for step in self.plan.steps:
            module, name = self.get_submodule(step.module), step.primitive.name
            if not module.state_dict():
                continue
            if name in modules:  # the normal form may change their order
                raise self.refusal(f"two operations {name} have weights; expected one")
            modules[name] = module
        return modules

    def _copy_operations(self, block: MatrixBlock) -> None:
        old = self._weighted()
        for name, module in block._weighted().items():
            state = old[name].state_dict()
            for parameter, tensor in module.state_dict().items():
                value = state.get(parameter, torch.zeros_like(tensor))  # a new bias is zero
                if value.shape != tensor.shape:
                    raise self.refusal(
                        f"{name} has weights of shape {tuple(value.shape)} for its heads; expected "
                        f"{tuple(tensor.shape)}, as many as the new form has"
                    )
                tensor.copy_(value)

    def check_readers(self, genome: Genome, index: int, *streams: str) -> None:
        """Raise GenomeError if a node other than number ``index`` reads one of these streams."""
        signatures = infer(genome).signatures
        for other in genome.live():
            node, primitive = genome.nodes[other], get(genome.nodes[other].op)
            unread = primitive.unread(full_params(node))
            ports = zip(node.inputs, signatures[other].inputs, strict=False)
            read = [ref for ref, port in ports if ref in streams and port.name not in unread]
            if read and other != index:
                raise self.refusal(
                    f"{read[0]} is read by {node.op}_{other} too; expected no other reader of a "
                    "stream that is merged or factored"
                )


def mapped(weight: Float[Tensor, "*h v w"], first: Affine) -> Affine:
    """Return the composition of a map of a token with linear maps of the heads that follow it."""
    # Separate products: the rounding of the weights must not depend on the column of biases.
    return torch.cat((weight @ first[..., :-1], weight @ first[..., -1:]), dim=-1)


def agree(
    first: Callable[[Tensor, Tensor | None], Tensor],
    second: Callable[[Tensor, Tensor | None], Tensor],
    dim: int,
) -> bool:
    """Return whether two blocks give equal outputs, without a mask and with a causal mask.

    The blocks are called with random tokens of several magnitudes, since the sums of a query's
    weights may depend on the scores.

    Args:
        first, second: functions of tokens (b, n, dim) in float64 and of a mask, True where allowed.
        dim: the number of features of a token.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, _TOKENS, dim, generator=generator, dtype=torch.float64)
    causal = torch.ones(_TOKENS, _TOKENS, dtype=torch.bool).tril()
    for magnitude in _MAGNITUDES:
        for mask in (None, causal):
            with torch.no_grad():
                expected, outputs = (f(magnitude * tokens, mask) for f in (first, second))
            tolerance = _TOLERANCE * float(expected.abs().max())
            if not torch.allclose(outputs, expected, rtol=0.0, atol=tolerance):
                return False
    return True
