"""Compile genomes to torch modules: plan, reference interpreter, lowering, and generated source."""

from __future__ import annotations

import hashlib
import linecache
import warnings
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from nas.common.errors import GenomeError
from nas.compiler.fast import FastSource
from nas.compiler.formula import formula, formula_of
from nas.compiler.inlining import file_source
from nas.compiler.interpreter import ReferenceAttention, check_sizes
from nas.compiler.lowering import chosen_rules, lower, rules
from nas.compiler.plain import PlainSource
from nas.compiler.plan import Plan, make_plan
from nas.compiler.resolved import ResolvedGenome, resolve, standard_attention
from nas.genome import Genome

if TYPE_CHECKING:
    from nas.compiler.source import Written

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
    """Build a mechanism as a module: ``block(x, attn_mask, key_padding_mask, is_causal)``.

    ``x`` and the result are (batch, tokens, dim). Weights are drawn from torch's global generator;
    generated source and interpreter draw them in the same order. The module has the attributes
    ``genome`` (the normal form), ``dim`` and ``heads``.

    Args:
        genome: a genome, or the plan of a genome that several layers share.
        qkv_bias: give W_Q, W_K and W_V a bias.
        reference: interpret the graph instead of running generated source.
        fuse: the rules that may replace scores, normaliser and aggregation by one call: all rules,
            no rule, or rules by name (``nas.compiler.rules()``).

    Warns:
        UserWarning: a part of the mechanism can never train.

    Raises:
        ConfigError: ``fuse`` names an unknown rule.
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
    """Return the Python source that ``build_attention`` runs."""
    return write(make_plan(genome), dim, heads, qkv_bias=qkv_bias, fuse=fuse).imported()


def plain_source(genome: Genome, dim: int, heads: int, qkv_bias: bool = False) -> str:
    """Return a Python file with the mechanism in readable torch. The file imports only torch.

    The class ``Attention`` of the file computes the same outputs as the module of
    ``build_attention``, and has the same state dict.

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
    """Write the source of a plan's class.

    Args:
        qkv_bias: as in ``build_attention``; None makes ``qkv_bias`` an argument of the class.
        is_fast: write the source for training (fast.py) instead of readable torch (plain.py).
        fuse: as in ``build_attention``.
    """
    chosen = chosen_rules(fuse)
    form = FastSource(plan, lower(plan, chosen)) if is_fast else PlainSource(plan, chosen)
    return form.write(dim, heads, qkv_bias)


@lru_cache(maxsize=512)
def _load(source: str) -> Any:
    """Return the class of generated source; tracebacks and ``inspect`` find its lines."""
    name = f"<nas attention {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "nas.compiler.generated"}
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - generated text, see source.py
    block_class = scope["Attention"]
    # The class has no module to import, so its source is pickled.
    block_class.__reduce__ = lambda block: (_empty_block, (source,), block.__dict__)
    return block_class


def _empty_block(source: str) -> Any:
    """Create a block without attributes; pickle sets them."""
    block_class = _load(source)
    return block_class.__new__(block_class)
