"""Build attention modules of genomes, and write their sources."""

from __future__ import annotations

import hashlib
import linecache
import sys
import weakref
from functools import lru_cache
from types import ModuleType
from typing import Any, cast

from torch import nn

from nas.common.errors import GenomeError
from nas.compiler.inlining import file_source, inlined
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.masks import check_masks
from nas.compiler.plan import Plan, check_sizes, make_plan
from nas.compiler.source import Source
from nas.genome import Genome


def build_attention(
    genome: Genome | Plan, dim: int, heads: int, *, qkv_bias: bool = False, reference: bool = False
) -> nn.Module:
    """Return the attention module ``block(x, attn_mask, key_padding_mask, is_causal)`` of a genome.

    The input ``x`` and the output have the shape (batch, tokens, dim). For the masks see
    ``nas.compiler.masks.check_masks``. The module has the attributes ``genome`` (in normal form),
    ``dim`` and ``heads``. With ``qkv_bias`` the projections W_Q, W_K and W_V have a bias.
    ``reference`` returns the interpreter in place of an instance of a generated class; both draw
    the same initial weights from torch's global generator.

    Raises:
        GenomeError: a primitive or parameter does not exist, or the mechanism cannot be built with
            these values of ``dim`` and ``heads``.
        ViolationError: the genome does not type-check.
    """
    plan = genome if isinstance(genome, Plan) else make_plan(genome)
    if reference:
        return ReferenceAttention(plan, dim, heads, qkv_bias)
    check_sizes(dim, heads)
    block_class = _load(Source(plan).write(dim, heads, qkv_bias).imported())
    try:
        block: Any = block_class(dim, heads)
    except ValueError as error:
        raise GenomeError(f"dim {dim}, heads {heads}: {error}.") from None
    block.genome = plan.genome
    block.register_forward_pre_hook(_check_call, with_kwargs=True)
    return cast("nn.Module", block)


def _check_call(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    check_masks(*args, **kwargs)


def plain_source(genome: Genome, dim: int, heads: int, qkv_bias: bool = False) -> str:
    """Return a Python file that imports only torch, with the genome's mechanism as readable code.

    Its class ``Attention`` has the outputs and the state dict of the ``build_attention`` module.

    Raises:
        GenomeError: a primitive or parameter of the genome does not exist.
        ViolationError: the genome does not type-check.
    """
    written = Source(make_plan(genome), is_fast=False).write(dim, heads, qkv_bias)
    return file_source([*inlined(written.roots), written.text])


@lru_cache(maxsize=512)
def _load(source: str) -> Any:
    # Tracebacks and ``inspect`` read the source by the name of the file of the class's module. This
    # module stays empty, because it would keep the class alive.
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    module = ModuleType(f"nas.compiler.generated_{digest}")
    module.__file__ = name = f"<nas attention {digest}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    sys.modules[module.__name__] = module
    scope: dict[str, Any] = {"__name__": module.__name__}
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - generated text, see source.py
    block_class = scope["Attention"]
    weakref.finalize(block_class, linecache.cache.pop, name, None)
    weakref.finalize(block_class, sys.modules.pop, module.__name__, None)
    # The class has no module to import, so its source is pickled.
    block_class.__reduce__ = lambda block: (_empty_block, (source,), block.__dict__)
    return block_class


def _empty_block(source: str) -> Any:
    block_class = _load(source)
    return block_class.__new__(block_class)  # pickle adds the attributes
