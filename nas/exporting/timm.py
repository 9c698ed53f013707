"""Write a mechanism as a Python file with a class that timm's vision transformers take.

    VisionTransformer(..., attn_layer=ViTAttention)

``ViTAttention`` is the class of ``py`` with the arguments that timm (1.0.31) gives its attention:
what a mechanism has no place for is refused, not ignored.
"""

from __future__ import annotations

import ast

from nas.compiler import make_plan, write
from nas.compiler.inlining import file_source
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.module import docstring
from nas.exporting.recording import Recording, record_block
from nas.exporting.subject import Subject

_USE = """\
An attention mechanism for timm's vision transformers; the file needs torch alone.

    from timm.models.vision_transformer import VisionTransformer
    model = VisionTransformer(embed_dim={dim}, num_heads={heads}, attn_layer=ViTAttention)"""

_CLASS = '''\
class ViTAttention(Attention):
    """The mechanism as an ``attn_layer``; its weights have the names that ``Attention``'s have."""

    def __init__(
        self,
        dim: int = {dim},
        num_heads: int = {heads},
        qkv_bias: bool = False,
        qk_norm: bool = False,
        scale_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: type[nn.Module] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if qk_norm or scale_norm or attn_drop:
            raise ValueError("the mechanism takes no qk_norm, scale_norm or attn_drop")
        super().__init__(dim, num_heads, qkv_bias)
        if not proj_bias and hasattr(self, "wo"):
            self.wo.bias = None
        self.qkv_bias, self.proj_drop = qkv_bias, nn.Dropout(proj_drop)
        self.to(device=device, dtype=dtype)

    def init_weights(self) -> None:
        """Start as the mechanism does: timm has drawn its linear maps as if they were a ViT's."""
        fresh = Attention(self.dim, self.heads, self.qkv_bias).state_dict()
        self.load_state_dict({{name: fresh[name] for name in self.state_dict()}})

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """attn_mask (n, n) or (b, 1, n, n), True where allowed."""
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            raise ValueError("attn_mask is added to scores; expected a bool mask")
        return self.proj_drop(super().forward(x, attn_mask, None, is_causal))
'''


def content(subject: Subject) -> str:
    """The text of the file.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
    """
    plan, dim, heads = make_plan(subject.genome), subject.dim, subject.heads
    subject.reference(subject.layer)  # says what is wrong with the sizes
    body = write(plan, dim, heads, qkv_bias=None, is_fast=subject.is_fast).alone()
    use = _USE.format(dim=dim, heads=heads)
    own = _CLASS.format(dim=dim, heads=heads)
    text = f"{docstring(plan, subject.origin, use, heads)}\n{file_source([*body, own])}"
    ast.parse(text)
    return text


def recording(subject: Subject) -> Recording:
    """One block under a mask of pairs, causal or not, as each call says."""
    causal = (False,) if make_plan(subject.genome).unsafe else (False, True)
    return record_block(subject, ("attn_mask",), causal, own=False)


EXPORTS.register("timm")(
    ExportFormat(
        ".py", content, takes=("is_fast",), needs=("timm",), loader="timm", recording=recording
    )
)
