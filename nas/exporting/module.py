"""Write a mechanism as one readable Python file whose only import is torch.

The class in it is the source that trained, with what it uses copied in; the docstring holds
genome, digest and run; run as a program the file compares itself with numbers computed here.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nas.canonical import digest
from nas.compiler import build_attention, formula_of, make_plan
from nas.compiler.emit import class_source, parts
from nas.errors import ExportError
from nas.export.inline import inlined

if TYPE_CHECKING:
    from pathlib import Path

    from nas.compiler import Plan
    from nas.genome import Genome


@dataclass(frozen=True)
class Origin:
    """What the file says about where the mechanism comes from."""

    source: str
    run: str | None = None
    results: str | None = None


def export_module(
    genome: Genome, dim: int, heads: int, origin: Origin, *, qkv_bias: bool = False
) -> str:
    """The text of the file; ``dim`` and ``heads`` become the defaults of its class.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
    """
    plan = make_plan(genome)
    attention = class_source(plan, dim, heads, qkv_bias)
    body = [*inlined(parts(plan, attention)), attention]
    imports = ["import torch", "from torch import Tensor, nn"]
    if any(re.search(r"\bF\.", source) for source in body):
        imports.append("from torch.nn import functional as F")
    head = [_docstring(plan, dim, heads, origin), "\n".join(imports) + "\n"]
    text = "\n\n".join([*head, *body, _self_test(*_expected(plan.genome, dim, heads, qkv_bias))])
    ast.parse(text)  # what is written can be read, whatever names went into it
    return text


def check_target(path: Path) -> None:
    """Refuse a place where no module can be written, before any work is done.

    Raises:
        ExportError: the name does not end in .py, or something else than a file is there.
    """
    if path.suffix != ".py":
        raise ExportError(f"{str(path)!r}: expected the name of a file that ends in .py.")
    if path.exists() and not path.is_file():
        raise ExportError(f"{path}: is there already and is no file.")


def write_module(text: str, path: Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        ExportError: the place cannot be written.
    """
    check_target(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ExportError(f"{path}: cannot be written ({error.strerror}).") from None


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


def _docstring(plan: Plan, dim: int, heads: int, origin: Origin) -> str:
    genome = json.dumps(plan.genome.to_dict(), indent=2)
    lines = [
        f'"""{formula_of(plan)}',
        "",
        "An attention mechanism as a torch module: (batch, tokens, dim) to (batch, tokens, dim).",
        "",
        f"    block = Attention(dim={dim}, heads={heads})",
        "    y = block(x, attn_mask=None, key_padding_mask=None, is_causal=False)",
        "",
        "attn_mask is boolean, True where attention is allowed; key_padding_mask is True at",
        "padding. Run as a program, this file tests itself.",
        "",
        f"Digest: {digest(plan.genome)}",
        f"Source: {_plain(origin.source)}",
        *([f"Run: {_plain(origin.run)}"] if origin.run else []),
        *([f"Measured: {_plain(origin.results)}"] if origin.results else []),
        "Genome:",
        genome,
        '"""',
    ]
    return "\n".join(lines) + "\n"


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
        out = block(x.view(2, 7, block.dim)).flatten()[: 2 * block.dim : max(1, block.dim // 4)]
    expected = [
{numbers}
    ]
    return (out - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


if __name__ == "__main__":
    difference = self_test()
    print(f"largest difference from the recorded outputs: {{difference:.1e}}")
    raise SystemExit(0 if difference < 1e-6 else 1)
'''
