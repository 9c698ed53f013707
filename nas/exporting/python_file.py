"""Formats ``py`` and ``timm``: one readable Python file whose only import is torch.

The file contains the class ``Attention`` and copies of all functions and classes that it uses. The
source is readable torch or, with ``--fast``, the source that training uses. The docstring contains
the genome, its digest and its origin. A ``py`` file that runs as a program compares its outputs
with recorded outputs. A ``timm`` file has one more class, for ``VisionTransformer(...,
attn_layer=ViTAttention)`` of timm 1.0.31.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

from nas.common.errors import ExportError
from nas.compiler import build_attention, formula_of, write
from nas.compiler.inlining import file_source
from nas.exporting.checking import ExpectedOutputs, block_outputs
from nas.exporting.classes import class_sources, layer_function
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.request import MASKS, ExportRequest
from nas.genome import ALL, Genome
from nas.genome.canonical import digest

_PY_USE: Final = """\
An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim={dim}, heads={heads})
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)"""

_HYBRID_USE: Final = """

A hybrid's mechanism: {placement}.
The attention of layers 0 to {last}:

    blocks = [attention_of_layer(layer, dim={dim}, heads={heads}) for layer in range({depth})]"""

_TIMM_USE: Final = """\
An attention mechanism for timm's vision transformers; the file needs torch alone.

    from timm.models.vision_transformer import VisionTransformer
    model = VisionTransformer(embed_dim={dim}, num_heads={heads}, attn_layer=ViTAttention)"""

_SOME_LAYERS: Final = """

timm uses attn_layer in every layer. The mechanism was found in some layers only; its placement, as
in the genome below, is: {placement}."""

_TIMM_CLASS: Final = '''\
class ViTAttention(Attention):
    """The mechanism as an ``attn_layer``; parameter names are those of ``Attention``."""

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
        """Restore the initial weights of the mechanism, which timm has overwritten."""
        initial = Attention(self.dim, self.heads, self.qkv_bias).state_dict()
        self.load_state_dict({{name: initial[name] for name in self.state_dict()}})

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """attn_mask is (n, n) or (b, 1, n, n), True where attention is allowed."""
        if attn_mask is not None and attn_mask.dtype != torch.bool:
            raise ValueError("attn_mask is added to scores; expected a bool mask")
        return self.proj_drop(super().forward(x, attn_mask, None, is_causal))
'''

_SELF_TEST: Final = '''\
def self_test() -> float:
    """The largest difference from the outputs recorded when this file was written."""
    block = {block}.double().eval()
    with torch.no_grad():
        for number, weight in enumerate(block.parameters()):
            pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
            weight.copy_({scale} * pattern.cos().view_as(weight))
        x = (torch.arange(2 * 7 * {dim}, dtype=torch.float64) * 0.37).sin()
        out = block(x.view(2, 7, -1)).flatten()[: 2 * {dim} : max(1, {dim} // 4)]
    expected = [
{numbers}
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {{difference:.1e}}")
    raise SystemExit(0 if difference < 1e-6 else 1)
'''


def py_content(request: ExportRequest) -> str:
    """Return the text of a ``py`` file.

    Raises:
        GenomeError: the mechanism cannot be built at this size.
        ViolationError: the genome does not type-check.
        ExportError: the outputs of the mechanism are not finite, even with small weights.
    """
    is_hybrid = request.genome.placement != ALL
    genomes = [request.genome, *([request.genome.rest()] if is_hybrid else [])]
    block, dim = "Attention()", "block.dim"
    if is_hybrid:
        block, dim = "nn.Sequential(Attention(), StandardAttention())", "block[0].dim"
    sources = class_sources(request, has_rest=is_hybrid)
    sources += [layer_function(request)] if is_hybrid else []
    scale, expected = _self_test_outputs(request, genomes)
    rows = [", ".join(map(repr, expected[i : i + 4])) for i in range(0, len(expected), 4)]
    numbers = "\n".join(f"        {row}," for row in rows)
    test = _SELF_TEST.format(block=block, dim=dim, scale=scale, numbers=numbers)
    return _file(request, _PY_USE + (_HYBRID_USE if is_hybrid else ""), [*sources, test])


def timm_content(request: ExportRequest) -> str:
    """Return the text of a ``timm`` file.

    Raises:
        GenomeError: the mechanism cannot be built at this size.
        ViolationError: the genome does not type-check.
    """
    request.reference(
        request.written_layer
    )  # raises where the mechanism does not exist at these sizes
    sizes = request.dim, request.heads
    sources = write(request.plan, *sizes, qkv_bias=None, is_fast=request.is_fast).alone()
    shim = _TIMM_CLASS.format(dim=request.dim, heads=request.heads)
    is_hybrid = request.genome.placement != ALL
    return _file(request, _TIMM_USE + (_SOME_LAYERS if is_hybrid else ""), [*sources, shim])


def _file(request: ExportRequest, use: str, sources: list[str]) -> str:
    plan = request.plan
    lines = [
        f'"""{formula_of(plan)}',
        "",
        *use.format(
            dim=request.dim,
            heads=request.heads,
            depth=request.depth,
            last=request.depth - 1,
            placement=plan.genome.placement,
        ).splitlines(),
        "",
        f"Digest: {digest(plan.genome)}",
        *(f"Note: {remark}." for remark in plan.remarks(request.heads)),
        *request.provenance.lines(),
        "Genome:",
        *_genome_lines(plan.genome),
        '"""',
    ]
    text = "\n".join([*lines, "", file_source(sources)])
    ast.parse(text)  # no name in the docstring may break the file
    return text


def _genome_lines(genome: Genome) -> list[str]:
    data = genome.to_dict()
    nodes = ",\n".join(f"    {json.dumps(node)}" for node in data.pop("graph_def"))
    rest = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in data.items())
    return f'{{ "graph_def": [\n{nodes}\n  ],\n{rest}\n}}'.splitlines()


def _self_test_outputs(
    request: ExportRequest, genomes: Sequence[Genome]
) -> tuple[float, list[float]]:
    """Return the scale of the self-test's weights, and the outputs expected with these weights.

    The blocks of the genomes are computed one after another. The scale is the largest of 0.3, 0.03
    and 0.003 for which the outputs are finite.
    """
    dim = request.dim
    with torch.random.fork_rng(devices=[]):
        blocks = nn.Sequential(
            *(
                build_attention(
                    genome, dim, request.heads, qkv_bias=request.qkv_bias, reference=True
                )
                for genome in genomes
            )
        )
    blocks = blocks.double().eval()
    x = (torch.arange(2 * 7 * dim, dtype=torch.float64) * 0.37).sin().view(2, 7, dim)
    for scale in (0.3, 0.03, 0.003):
        with torch.no_grad():
            for number, weight in enumerate(blocks.parameters()):
                pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
                weight.copy_(scale * pattern.cos().view_as(weight))
            out = blocks(x).flatten()[: 2 * dim : max(1, dim // 4)]
        if bool(out.isfinite().all()):
            return scale, [float(f"{value:.12g}") for value in out.tolist()]
    raise ExportError("the mechanism's outputs are not finite, so no self-test can be written.")


def _expected(request: ExportRequest, masks: tuple[str, ...]) -> ExpectedOutputs:
    causal = (False,) if request.plan.unsafe else (False, True)
    return block_outputs(request, masks, causal, with_file_weights=False)


PY: Final = ExportFormat(
    ".py",
    py_content,
    options=("is_fast",),
    tests_itself=True,
    loader="py",
    expected=lambda request: _expected(request, MASKS),
)
for _name in ("module", "py"):
    EXPORTS.register(_name)(PY)
EXPORTS.register("timm")(
    ExportFormat(
        ".py",
        timm_content,
        options=("is_fast",),
        packages=("timm",),
        loader="timm",
        expected=lambda request: _expected(request, ("attn_mask",)),
    )
)
