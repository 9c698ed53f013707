"""From genome to torch module: plan, interpreter (the reference), lowering, emitted source."""

from __future__ import annotations

import hashlib
import linecache
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from nas.common.errors import GenomeError
from nas.compiler.fast import FastSource
from nas.compiler.formula import formula, formula_of
from nas.compiler.inlining import file_source
from nas.compiler.interpreter import ReferenceAttention, check_sizes
from nas.compiler.lowering import chosen_rules, lower, rules
from nas.compiler.plain import PlainSource
from nas.compiler.plan import Plan, make_plan
from nas.compiler.resolved import ResolvedGenome, resolve, standard_attention

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import nn

    from nas.compiler.source import Written
    from nas.genome import Genome

__all__ = [
    "Plan",
    "ResolvedGenome",
    "build_attention",
    "emit",
    "formula",
    "formula_of",
    "make_plan",
    "plain_source",
    "resolve",
    "rules",
    "standard_attention",
    "write",
]


def build_attention(
    genome: Genome | Plan,
    dim: int,
    heads: int,
    *,
    qkv_bias: bool = False,
    reference: bool = False,
    fuse: bool | Collection[str] = True,
) -> nn.Module:
    """A mechanism as a module: ``block(x, attn_mask, key_padding_mask, is_causal)``.

    ``x`` and the result are (batch, tokens, dim). Weights are drawn from torch's global
    generator, in the same order by both back ends. The module keeps its canonical ``genome``, and
    ``dim`` and ``heads``.

    Args:
        genome: or its plan, where one serves several layers.
        qkv_bias: give W_Q, W_K and W_V a bias.
        reference: interpret the graph instead of running the generated source.
        fuse: let dot products, softmax and aggregation be one call: by all rules, by none, or by
            those named (``nas.compiler.rules()``).

    Warns:
        UserWarning: a part of it can never train.

    Raises:
        ConfigError: no rule has that name.
        GenomeError: the mechanism does not exist at this size.
        ViolationError: the genome does not type-check.
    """
    plan = genome if isinstance(genome, Plan) else make_plan(genome)
    for caution in plan.cautions:
        warnings.warn(caution, stacklevel=2)
    if reference:
        return ReferenceAttention(plan, dim, heads, qkv_bias)
    check_sizes(dim, heads)
    try:
        source = write(plan, dim, heads, qkv_bias=qkv_bias, fuse=fuse).imported()
        block: Any = _load(source)(dim, heads)
    except ValueError as error:
        raise GenomeError(f"dim {dim}, heads {heads}: {error}.") from None
    block.genome = plan.genome
    return cast("nn.Module", block)


def emit(
    genome: Genome,
    dim: int,
    heads: int,
    *,
    qkv_bias: bool = False,
    fuse: bool | Collection[str] = True,
) -> str:
    """The Python source that ``build_attention`` runs."""
    return write(make_plan(genome), dim, heads, qkv_bias=qkv_bias, fuse=fuse).imported()


def plain_source(genome: Genome, dim: int, heads: int, qkv_bias: bool = False) -> str:
    """The mechanism as its authors would write it: a file's text that imports torch alone.

    Its class ``Attention`` is equal to ``build_attention``'s block, with the same state dict.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist.
    """
    written = write(make_plan(genome), dim, heads, qkv_bias=qkv_bias, is_fast=False)
    return file_source(written.alone())


def write(
    plan: Plan,
    dim: int,
    heads: int,
    *,
    qkv_bias: bool | None = False,
    is_fast: bool = True,
    fuse: bool | Collection[str] = True,
) -> Written:
    """The class of a plan, in the form for training or, without ``is_fast``, the plain one.

    Args:
        qkv_bias: as for ``build_attention``; None makes it an argument of the class.
    """
    chosen = chosen_rules(fuse)
    form = FastSource(plan, lower(plan, chosen)) if is_fast else PlainSource(plan, chosen)
    return form.write(dim, heads, qkv_bias)


@lru_cache(maxsize=512)
def _load(source: str) -> Any:
    """Execute generated source; tracebacks and ``inspect`` find its lines."""
    name = f"<nas attention {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "nas.compiler.generated"}
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - our own text, see source.py
    block_class = scope["Attention"]
    # A class without a file: what is pickled is its source.
    block_class.__reduce__ = lambda block: (_empty_block, (source,), block.__dict__)
    return block_class


def _empty_block(source: str) -> Any:
    """A block without attributes, which pickle then sets."""
    block_class = _load(source)
    return block_class.__new__(block_class)
