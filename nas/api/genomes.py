"""Functions that count, show, validate and build genomes, and that list names."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from nas import compiler
from nas.common.arguments import public
from nas.common.config import named_files
from nas.common.objectives import QUALITY, check_count
from nas.costs import COSTS
from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import get, names
from nas.genome.primitives.base import REGISTRY
from nas.report.costs import CostTable, count_costs, sizes_of
from nas.report.result import Result
from nas.report.show import ShowResult, examine
from nas.space import load_space, rules
from nas.space.rules import Violation
from nas.store.sources import load_genome, resolve
from nas.tasks import built_in_tasks, load_task


@dataclass(frozen=True)
class ValidateResult(Result):
    """Whether a genome with this digest obeys the rules of a policy."""

    valid: bool
    digest: str
    policy: str
    violations: tuple[Violation, ...]


@public
def cost(
    sources: str | Path | Genome | Sequence[str | Path | Genome],
    *,
    dim: int | None = None,
    heads: int | None = None,
    tokens: int | Sequence[int] | None = None,
) -> CostTable:
    """Count the costs of one attention block at batch 1.

    Examples:
        >>> nas.cost("mha", dim=64, heads=4, tokens=64).table.macs.tolist()
        [1572864]
        >>> result = nas.cost(["mha", "sqa"], tokens=[64, 1024])
        >>> [(row.source, row.tokens) for row in result.rows]
        [('mha', 64), ('mha', 1024), ('sqa', 64), ('sqa', 1024)]

    Args:
        sources: see ``nas.api.execution``. If one is a torch module of yours, its costs are
            measured, and the table has measured times of all.
        dim, heads: by default those of the task of a run's mechanism, or 64 and 4.
        tokens: sequence length, or several lengths; by default that of the run's task, or 65.
    """
    items = [sources] if isinstance(sources, str | Path | Genome) else sources
    resolved = [resolve(source) for source in items]
    sizes = sizes_of(resolved, dim=dim, heads=heads)
    tokens = sizes.tokens if tokens is None else tokens
    lengths = [tokens] if isinstance(tokens, int) else tokens
    check_count("number of sources", len(items))
    check_count("number of sequence lengths", len(lengths))
    for length in lengths:
        check_count("tokens", length)
    return count_costs(resolved, sizes.dim, sizes.heads, lengths)


@public
def show(
    source: str | Path | Genome,
    *,
    dim: int | None = None,
    heads: int | None = None,
    tokens: int | None = None,
) -> ShowResult:
    """Return formula, graph, costs and results of a genome, as an object that notebooks display.

    Examples:
        >>> nas.show("mha").formula
        '(softmax((Q·Kᵀ)/√d)·V)·W_O'

    Args:
        source, dim, heads: see ``nas.api.execution``; a run's genome is shown with its results.
        tokens: sequence length; by default that of the run's task, or 65.
    """
    return examine(resolve(source), dim, heads, tokens)


@public
def validate(
    source: str | Path | Genome, *, policy: str = "score_normalize_aggregate"
) -> ValidateResult:
    """Check the types of a genome's operations and the rules of a policy; return what is broken.

    Examples:
        >>> nas.validate("mha").valid
        True

    ``policy`` is the name or path of a file of rules on the paths of a genome's graph.
    """
    loaded, genome = rules.load_policy(policy), resolve(source).genome
    violations = rules.validate(genome, loaded)
    return ValidateResult(not violations, digest(genome), loaded.name, violations)


@public
def build_attention(
    source: str | Path | Genome, dim: int, heads: int, *, qkv_bias: bool = False
) -> nn.Module:
    """Return a mechanism as a module ``block(x, attn_mask, key_padding_mask, is_causal)``.

    Examples:
        >>> nas.build_attention("mha", dim=64, heads=4)(torch.randn(2, 10, 64)).shape
        torch.Size([2, 10, 64])

    The module maps (batch, tokens, dim) to the same shape. ``attn_mask`` is True where attention is
    allowed. ``key_padding_mask`` is True at padding. ``is_causal`` hides later tokens.

    Args:
        qkv_bias: whether query, key and value projections have a bias.
    """
    return compiler.build_attention(load_genome(source), dim, heads, qkv_bias=qkv_bias)


def list_objectives() -> dict[str, str]:
    """Return a description of each objective of all search spaces, by name."""
    quality = "the first metric of the task that is searched on; other metrics have their own names"
    return {QUALITY: quality} | {name: COSTS[name].about for name in COSTS.names()}


def list_mechanisms() -> dict[str, str]:
    """Return a line of description of each named mechanism, by name."""
    return {name: mechanism.about for name, mechanism in MECHANISMS.items()}


def list_primitives() -> dict[str, str]:
    """Return a line of description of each primitive, by name."""
    return {name: get(name).about for name in names()}


def primitive(name: str) -> dict[str, str]:
    """Return what ``nas primitives NAME`` prints about an operation."""
    entry = REGISTRY[name]
    return {
        "name": entry.name,
        "types": "; ".join(map(str, entry.signatures)),
        "role": ", ".join(dict.fromkeys(signature.role for signature in entry.signatures)),
        "formula": entry.notation.replace("{", "").replace("}", ""),
        "parameters": "; ".join(
            f"{parameter}: {domain.expected}, by default {domain.default}"
            for parameter, domain in entry.parameters.items()
        ),
        "publication": entry.source,
        "code": inspect.getsource(entry.module).rstrip("\n"),
    }


def list_spaces() -> dict[str, str]:
    """Return a description of each packaged search space and of those in ./search_spaces."""
    return {name: load_space(name).about for name in named_files("search_spaces")}


def list_tasks() -> dict[str, str]:
    """Return a description of each built-in task, by name."""
    return {name: load_task(name).about for name in built_in_tasks()}
