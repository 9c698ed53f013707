"""Genomes: what one costs, all that is known of it, whether it is legal; one as a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nas import compiler
from nas.common.objectives import QUALITY
from nas.costs import COSTS
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import cost_answer, count_costs
from nas.report.show import examine, show_answer
from nas.space import validation
from nas.store.sources import load_genome, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


Given: TypeAlias = str | Path | Genome


def cost(
    sources: Given | Sequence[Given],
    *,
    dim: int = 64,
    heads: int = 4,
    tokens: int | Sequence[int] = 65,
) -> Any:
    """What one attention block costs: a dict for one source and length, else a list of them.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    given = [sources] if isinstance(sources, Given) else sources
    lengths = [tokens] if isinstance(tokens, int) else tokens
    return cost_answer(count_costs([resolve(source) for source in given], dim, heads, lengths))


def show(
    source: Given, *, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> dict[str, Any]:
    """All that is known of one genome: the answer of ``nas show --json``; see ``examine``."""
    return show_answer(examine(resolve(source), dim, heads, tokens))


def validate(source: Given, *, policy: str = "score_normalize_aggregate") -> dict[str, Any]:
    """Judge a genome by types and a policy: the answer of ``nas validate --json``."""
    rules, genome = validation.load_policy(policy), resolve(source).genome
    found = validation.with_repairs(genome, rules, validation.validate(genome, rules))
    return {
        "valid": not found,
        "digest": digest(genome),
        "policy": rules.name,
        "violations": [violation.to_dict() for violation in found],
    }


def build_attention(source: Given, dim: int, heads: int, *, qkv_bias: bool = False) -> nn.Module:
    """A mechanism as a module: ``block(x, attn_mask, key_padding_mask, is_causal)``.

    See ``nas.compiler.build_attention``, which also takes the options of its back ends.
    """
    return compiler.build_attention(load_genome(source), dim, heads, qkv_bias=qkv_bias)


def list_objectives() -> dict[str, str]:
    """What a space may name as objectives, and what each is; a task's other metrics too."""
    quality = "the first metric of the task that is searched on; its others by their own names"
    return {QUALITY: quality} | {name: COSTS.get(name).about for name in COSTS.names()}


def list_mechanisms() -> dict[str, str]:
    """The named mechanisms, and what each is."""
    return {name: found.about for name, found in MECHANISMS.items()}
