"""Write a mechanism as one readable Python file whose only import is torch.

In its plain form the class is what its authors would have written, in its fast form what trained
it, with all that it uses copied in. The docstring holds genome, digest and run; run as a program
the file compares itself with numbers computed here.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

import torch

from nas.common.errors import ExportError
from nas.compiler import build_attention, formula_of, make_plan, write
from nas.compiler.inlining import file_source
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.recording import Recording, record_block
from nas.exporting.subject import MASKS, Origin, Subject
from nas.genome import Genome
from nas.genome.canonical import digest

if TYPE_CHECKING:
    from nas.compiler import Plan

_USE = """\
An attention mechanism as a torch module; run as a program, this file tests itself.

    block = Attention(dim={dim}, heads={heads})
    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)"""


def export_module(
    genome: Genome,
    dim: int,
    heads: int,
    origin: Origin,
    *,
    qkv_bias: bool = False,
    is_fast: bool = False,
) -> str:
    """The text of the file; ``dim`` and ``heads`` become the defaults of its class.

    Args:
        is_fast: the form that is trained, in place of the one to read.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
    """
    plan = make_plan(genome)
    body = write(plan, dim, heads, qkv_bias=qkv_bias, is_fast=is_fast).alone()
    body.append(_self_test(*_expected(plan.genome, dim, heads, qkv_bias)))
    text = (
        f"{docstring(plan, origin, _USE.format(dim=dim, heads=heads), heads)}\n{file_source(body)}"
    )
    ast.parse(text)  # what is written can be read, whatever names went into it
    return text


def content(subject: Subject) -> str:
    """The text of the file."""
    return export_module(
        *(subject.genome, subject.dim, subject.heads, subject.origin),
        qkv_bias=subject.qkv_bias,
        is_fast=subject.is_fast,
    )


def recording(subject: Subject) -> Recording:
    """One block under both masks, causal or not, as each call says."""
    causal = (False,) if make_plan(subject.genome).unsafe else (False, True)
    return record_block(subject, MASKS, causal, own=False)


PY = ExportFormat(
    ".py", content, takes=("is_fast",), tests_itself=True, loader="py", recording=recording
)
for _name in ("module", "py"):
    EXPORTS.register(_name)(PY)


def _expected(genome: Genome, dim: int, heads: int, qkv_bias: bool) -> tuple[float, list[float]]:
    """Outputs of the interpreter on fixed weights and input, and the size of those weights.

    Raises:
        ExportError: they are not finite, however small the weights.
    """
    with torch.random.fork_rng(devices=[]):
        block = build_attention(genome, dim, heads, qkv_bias=qkv_bias, reference=True)
    block = block.double().eval()
    x = (torch.arange(2 * 7 * dim, dtype=torch.float64) * 0.37).sin().view(2, 7, dim)
    for scale in (0.3, 0.03, 0.003):
        with torch.no_grad():
            for number, weight in enumerate(block.parameters()):
                pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
                weight.copy_(scale * pattern.cos().view_as(weight))
            out = block(x).flatten()[: 2 * dim : max(1, dim // 4)]
        if bool(out.isfinite().all()):
            return scale, [float(f"{value:.12g}") for value in out.tolist()]
    raise ExportError("the mechanism's outputs are not finite, so no self-test can be written.")


def _plain(text: str) -> str:
    """Text that can stand in a docstring: what could end or escape it becomes a question mark."""
    return "".join(c if c.isprintable() and c not in '\\"' else "?" for c in text)


def docstring(plan: Plan, origin: Origin, use: str, heads: int) -> str:
    """What a file says of itself; ``use`` is how it is used, and the genome can be read back."""
    lines = [
        f'"""{formula_of(plan)}',
        "",
        *use.splitlines(),
        "",
        f"Digest: {digest(plan.genome)}",
        f"Source: {_plain(origin.source)}",
        *(f"Note: {remark}." for remark in plan.remarks(heads)),
        *([f"Run: {_plain(origin.run)}"] if origin.run else []),
        *([f"Measured: {_plain(origin.results)}"] if origin.results else []),
        "Genome:",
        *_genome_lines(plan.genome),
        '"""',
    ]
    return "\n".join(lines) + "\n"


def _genome_lines(genome: Genome) -> list[str]:
    """The genome's JSON, a node a line."""
    data = genome.to_dict()
    nodes = ",\n".join(f"    {json.dumps(node)}" for node in data.pop("graph_def"))
    rest = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in data.items())
    return f'{{ "graph_def": [\n{nodes}\n  ],\n{rest}\n}}'.splitlines()


def _self_test(scale: float, expected: list[float]) -> str:
    rows = [", ".join(repr(v) for v in expected[i : i + 4]) for i in range(0, len(expected), 4)]
    numbers = "\n".join(f"        {row}," for row in rows)
    return f'''def self_test() -> float:
    """The largest difference from the outputs recorded when this file was written."""
    block = Attention().double().eval()
    with torch.no_grad():
        for number, weight in enumerate(block.parameters()):
            pattern = torch.arange(weight.numel(), dtype=weight.dtype) * 0.7 + number
            weight.copy_({scale} * pattern.cos().view_as(weight))
        x = (torch.arange(2 * 7 * block.dim, dtype=torch.float64) * 0.37).sin()
        out = block(x.view(2, 7, -1)).flatten()[: 2 * block.dim : max(1, block.dim // 4)]
    expected = [
{numbers}
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {{difference:.1e}}")
    raise SystemExit(0 if difference < 1e-6 else 1)
'''
