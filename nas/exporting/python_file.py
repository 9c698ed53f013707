"""Format ``py``: one readable Python file whose only import is torch.

The file contains the class ``Attention`` and copies of all functions and classes that it uses. Its
docstring contains the genome, its digest and its origin. Run as a program, it compares its outputs
with recorded outputs of the reference interpreter.
"""

from __future__ import annotations

import ast
import json
import runpy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import torch
from safetensors.torch import save
from torch import Tensor, nn

from nas.common.errors import ExportError
from nas.compiler import build_attention, formula_of, make_plan
from nas.compiler.decoding import decode_lines, not_decodable
from nas.compiler.inlining import file_source, inlined
from nas.compiler.source import Source
from nas.exporting.formats import (
    EXPORTS,
    ExportFormat,
    ExportRequest,
    add_noise,
    computing,
    largest_difference,
)
from nas.genome import ALL, Genome, Placement
from nas.genome.canonical import digest

_LARGEST: Final = 1e3  # of the recorded outputs, of which 1e-6 is then far above rounding

_USE: Final = """\
An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim={dim}, heads={heads})
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)"""

_DECODE_USE: Final = """
    y = block(x, is_causal=True)  # in a language model: hides later tokens
    y = block.decode(x, cache)  # the next tokens of a causal text; cache = {} at its start"""

_HYBRID_USE: Final = """

A hybrid's mechanism: {placement}.
The attention of a model's layers:

    blocks = [attention_of_layer(layer, dim={dim}, heads={heads}) for layer in range(depth)]"""

_LAYER_FUNCTION: Final = '''\
def attention_of_layer(layer: int, dim: int = {dim}, heads: int = {heads}) -> nn.Module:
    """Return the attention of a model's layer, numbered from 0."""
    has_mechanism = {condition}
    return (Attention if has_mechanism else StandardAttention)(dim, heads)
'''

# Statements of the self-test, by which the recorded outputs are computed, too.
_OUTPUTS: Final = """\
    with torch.no_grad():
        for number, weight in enumerate(block.parameters()):
            pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
            weight.copy_({scale} * pattern.cos().view_as(weight))
        x = (torch.arange(2 * 7 * {dim}, dtype=torch.float64) * 0.37).sin()
        out = block(x.view(2, 7, -1)).flatten()[: 2 * {dim} : max(1, {dim} // 4)]
"""
_SELF_TEST: Final = '''\
def self_test() -> float:
    """The largest difference from the outputs recorded when this file was written."""
    block = {block}.double().eval()
{outputs}    expected = [
{numbers}
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {{difference:.1e}}")
    raise SystemExit(0 if difference < 1e-6 else 1)
'''


def python_file(request: ExportRequest) -> str:
    """Return the text of the file.

    Raises:
        ExportError: the outputs of the mechanism are not finite, even with small weights, or a
            causal class would have no method ``decode``.
    """
    decodes = request.is_causal and not request.is_fast
    lacking = [name for g in _genomes(request) for name in not_decodable(make_plan(g))]
    if decodes and lacking:
        raise ExportError(
            f"{', '.join(dict.fromkeys(lacking))} declares no recurrence, so the class could have "
            "no method decode; expected --no-causal."
        )
    sizes = {"dim": request.dim, "heads": request.heads}
    use, block, dim = _USE.format(**sizes), "Attention()", "block.dim"
    sources = class_sources(request, decodes=decodes)
    placement = request.genome.placement
    use += _DECODE_USE if decodes else ""
    if placement != ALL:
        use += _HYBRID_USE.format(placement=placement, **sizes)
        block, dim = "nn.Sequential(Attention(), StandardAttention())", "block[0].dim"
        sources.append(_LAYER_FUNCTION.format(condition=_condition(placement), **sizes))
    scale, expected = _recorded_outputs(request)
    rows = [", ".join(map(repr, expected[i : i + 4])) for i in range(0, len(expected), 4)]
    numbers = "\n".join(f"        {row}," for row in rows)
    outputs = _OUTPUTS.format(dim=dim, scale=scale)
    sources.append(_SELF_TEST.format(block=block, outputs=outputs, numbers=numbers))
    plan = request.plan
    lines = [
        f'"""{formula_of(plan)}',
        "",
        *use.splitlines(),
        "",
        f"Digest: {digest(plan.genome)}",
        *(f"Note: {remark}." for remark in plan.remarks(request.heads)),
        *map(_safe, request.origin),
        "Genome:",
        *_genome_lines(plan.genome),
        '"""',
    ]
    text = "\n".join([*lines, "", file_source(sources)])
    ast.parse(text)  # no name in the docstring may break the file
    return text


def class_sources(request: ExportRequest, *, fuse: bool = True, decodes: bool = False) -> list[str]:
    """Return the definitions of a file that imports only torch; the last is ``Attention``.

    The file of a hybrid defines ``StandardAttention``, of the layers without the mechanism, too.
    With ``fuse``, torch's fused attention may be called. A class that ``decodes`` has a method
    ``decode``, for which ``not_decodable`` must be empty.
    """
    classes = [
        Source(make_plan(genome), request.is_fast, fuse).write(
            request.dim, request.heads, request.qkv_bias, decode_lines if decodes else None
        )
        for genome in reversed(_genomes(request))
    ]
    texts = [written.text for written in classes]
    if len(texts) > 1:
        texts[0] = texts[0].replace("class Attention(", "class StandardAttention(", 1)
    return [*inlined(root for written in classes for root in written.roots), *texts]


def _genomes(request: ExportRequest) -> list[Genome]:
    genome = request.genome
    return [genome] if genome.placement == ALL else [genome, genome.rest()]


def _condition(placement: Placement) -> str:
    every, count, offset = placement.every, placement.count, placement.offset
    if every is None:
        return f"{offset} <= layer < {offset + count}" if offset else f"layer < {count}"
    if count == 1:
        return f"layer % {every} == {offset}"
    return f"(layer - {offset}) % {every} < {count}" if offset else f"layer % {every} < {count}"


def _safe(line: str) -> str:
    # Some characters could end the docstring.
    return "".join(c if c.isprintable() and c not in '\\"' else "?" for c in line)


def _genome_lines(genome: Genome) -> list[str]:
    data = genome.to_dict()
    nodes = ",\n".join(f"    {json.dumps(node)}" for node in data.pop("graph_def"))
    rest = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in data.items())
    return f'{{ "graph_def": [\n{nodes}\n  ],\n{rest}\n}}'.splitlines()


def _recorded_outputs(request: ExportRequest) -> tuple[float, list[float]]:
    """Return the scale of the self-test's weights, and the outputs with these weights."""
    sizes = request.dim, request.heads
    with torch.random.fork_rng(devices=[]):
        blocks = [
            build_attention(genome, *sizes, qkv_bias=request.qkv_bias, reference=True)
            for genome in _genomes(request)
        ]
    scope: dict[str, Any] = {"torch": torch, "block": nn.Sequential(*blocks).double().eval()}
    for scale in (0.3, 0.03, 0.003):
        with computing():
            exec(dedent(_OUTPUTS.format(dim=request.dim, scale=scale)), scope)  # noqa: S102 - our own
        if float(scope["out"].abs().max()) < _LARGEST:
            return scale, [float(f"{value:.12g}") for value in scope["out"].tolist()]
    raise ExportError("the mechanism's outputs are too large for a self-test, with any weights.")


def difference(request: ExportRequest, path: Path) -> float:
    """Return the ``largest_difference`` of a file's class, which also passes its own test."""
    block = request.block()
    add_noise(block)
    with torch.random.fork_rng(devices=[]):
        scope = runpy.run_path(str(path), run_name="exported")
        if not scope["self_test"]() < 1e-6:
            raise ExportError("the exported file fails its own test.")
        module = scope["Attention"]().eval()
    module.load_state_dict(block.state_dict())
    block.double()
    found, causal = partial(module, is_causal=True), partial(block, is_causal=True)
    pairs: list[tuple[Callable[..., Tensor], Callable[..., Tensor]]] = [(module, block)]
    pairs += [] if request.plan.unsafe else [(found, causal)]
    if hasattr(module, "decode"):
        pairs.append((partial(_decoded, module), lambda x, *masks: causal(x)))
    return max(largest_difference(request.dim, *pair) for pair in pairs)


def _decoded(module: Any, x: Tensor, *masks: Tensor) -> Tensor:
    """Return the outputs of a text that is decoded by two tokens at a time."""
    cache: dict[str, Tensor] = {}
    return torch.cat([module.decode(x[:, i : i + 2], cache) for i in range(0, x.shape[1], 2)], 1)


def weights_file(genome: Genome, layer: int, weights: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file for ``Attention().load_state_dict``."""
    about = {"digest": digest(genome), "layer": layer, "genome": genome.to_dict()}
    # One entry, since safetensors writes several in a random order.
    content: bytes = save(dict(weights), metadata={"nas": json.dumps(about)})
    return content


EXPORTS.register("py")(ExportFormat(python_file, difference))
