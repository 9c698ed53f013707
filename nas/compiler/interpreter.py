"""The reference interpreter, with which tests compare generated source."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from nas.compiler.kernels.attention import merge_heads, repeat_heads, split_heads
from nas.compiler.masks import in_window, visible_keys
from nas.compiler.plan import check_sizes

if TYPE_CHECKING:
    from nas.compiler.plan import Plan, Stream


class ReferenceAttention(nn.Module):
    """An attention module that executes a plan by calling one primitive after another.

    Raises:
        GenomeError: the mechanism cannot be built with these values of ``dim`` and ``heads``.
    """

    def __init__(self, plan: Plan, dim: int, heads: int, qkv_bias: bool = False) -> None:
        super().__init__()
        check_sizes(dim, heads)
        self.plan, self.genome, self.dim, self.heads = plan, plan.genome, dim, heads
        linears = plan.linears(dim, heads)
        merged = linears.pop("o", None)
        for name, widths in linears.items():
            self.add_module(f"w{name}", nn.Linear(*widths, bias=qkv_bias))
        for step in plan.steps:
            sizes = plan.sizes(step, dim, heads, qkv_bias)
            self.add_module(step.module, step.build(sizes, dim, heads))
        if merged is not None:
            self.wo = nn.Linear(*merged)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the output of ``x``, (batch, tokens, dim); for the masks see ``check_masks``."""
        if is_causal and self.plan.unsafe:
            raise ValueError(f"{', '.join(self.plan.unsafe)} sees later tokens: not causal")
        visible = visible_keys(x, attn_mask, key_padding_mask, is_causal)
        mask, visibility = visible, self.genome.visibility
        if visibility.window is not None:
            place = torch.arange(x.shape[1], device=x.device)
            limits = visibility.window, visibility.global_tokens, is_causal
            near = in_window(place[:, None], place, *limits)
            mask = near if visible is None else visible & near
        values = {stream.name: self.read(stream, x) for stream in self.plan.streams}
        for step in self.plan.steps:
            count = step.type.head_count(self.heads)
            operands = [repeat_heads(values[o.variable], count) for o in step.operands]
            # Operations that mix neighbours ignore the mechanism's window.
            extras = {"x": x, "mask": mask if step.is_paired else visible}
            arguments = {name: extras[name] for name in step.primitive.extras}
            values[step.variable] = self.get_submodule(step.module)(*operands, **arguments)
        out, projections = values[self.plan.steps[-1].variable], self.genome.projections
        whole = out.sum(dim=1) if projections.merge == "sum" else merge_heads(out)
        return cast("Tensor", self.wo(whole)) if projections.has_wo else whole

    def read(self, stream: Stream, x: Tensor) -> Tensor:
        """Return a stream of ``x``, split into its heads."""
        projected = self.get_submodule(f"w{stream.name}")(x) if stream.is_projected else x
        return split_heads(projected, stream.type.head_count(self.heads))
