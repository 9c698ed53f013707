"""Count random genomes that compute the same function but have different digests.

Two mechanisms are duplicates if some assignment of equal weights to their modules gives equal
outputs. Outputs in float64 are compared for all assignments, up to ``MOST_ASSIGNMENTS``, with
weights of two sizes: with large weights a softmax may select one key, with small ones a difference
may be below the digits that are compared.
"""

from __future__ import annotations

import argparse
from itertools import islice, permutations, product
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
import torch

from benchmarks.rows import Row
from nas.common.config import named_files
from nas.compiler import resolve
from nas.compiler.interpreter import ReferenceAttention
from nas.compiler.plan import plan_as_written
from nas.genome import Genome, ModelSizes, Node
from nas.genome.canonical import digest
from nas.genome.primitives import get
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.compiler.plan import ResolvedGenome

COUNT: Final = 3_000
SIZES: Final = ModelSizes(dim=64, heads=8, depth=8, tokens=40)
MOST_ASSIGNMENTS: Final = 24
SPREADS: Final = (0.5, 0.15)  # standard deviations of the weights


def duplicates(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the number of duplicates among the distinct random genomes of each search space."""
    for name in named_files("search_spaces"):
        space, rng = load_space(name), np.random.default_rng(1)
        genomes = samples(Variation(space, load_policy(space.policy)), COUNT)
        unlike = sum(digest(g) != digest(renumbered(g, rng)) for g in genomes)
        resolved = {}
        for genome in genomes:
            found = resolve(genome, SIZES, is_causal=space.causal)
            resolved[found.key] = found
        twins = len(resolved) - len({_function(each) for each in resolved.values()})
        yield {
            "space": name,
            "renumbered unlike": unlike,
            "distinct": len(resolved),
            "duplicates": twins,
        }


def samples(variation: Variation, count: int) -> list[Genome]:
    """Return random samples, each mutated once."""
    rng = np.random.default_rng(0)
    return [variation.mutate(variation.sample(rng), rng)[0] for _ in range(count)]


def renumbered(genome: Genome, rng: np.random.Generator) -> Genome:
    """Return the same graph with nodes in another order, and operands that commute exchanged."""
    names: dict[Any, int] = {}
    nodes: list[Node] = []
    while len(nodes) < len(genome.nodes):
        last = len(genome.nodes) - 1
        ready = [
            index
            for index, node in enumerate(genome.nodes)
            if index not in names
            and (index != last or len(nodes) == last)
            and all(isinstance(ref, str) or ref in names for ref in node.inputs)
        ]
        index = ready[rng.integers(len(ready))]
        node = genome.nodes[index].renamed(names)
        if get(node.op).commutes and rng.random() < 0.5:
            node = Node(node.op, node.inputs[::-1], node.params)
        names[index] = len(nodes)
        nodes.append(node)
    return Genome(tuple(nodes), genome.projections, genome.placement, genome.visibility)


def _function(resolved: ResolvedGenome) -> tuple[Any, ...]:
    """Return a value that is equal for mechanisms with the same function and layers."""
    genome = resolved.genome
    layers = genome.placement.layers(SIZES.depth), genome.placement.rest
    block = ReferenceAttention(plan_as_written(genome), SIZES.dim, SIZES.heads).double().eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, SIZES.tokens, SIZES.dim, dtype=torch.float64, generator=generator)
    weights = torch.randn(2, x.numel(), dtype=torch.float64, generator=generator)
    outputs = []
    for seeds in islice(_assignments(block), MOST_ASSIGNMENTS):
        numbers: list[float] = []
        for spread in SPREADS:
            for (name, parameter), seed in zip(block.named_parameters(), seeds, strict=True):
                local = torch.Generator().manual_seed(
                    crc32(f"{seed}{name.split('.')[1:]}".encode())
                )
                torch.nn.init.normal_(parameter, std=spread, generator=local)
            with torch.no_grad():
                out = block(x, is_causal=resolved.is_causal is True).flatten()
            numbers += (weights @ out).tolist()
        outputs.append(tuple(f"{number:.7e}" for number in numbers))
    return (*layers, min(outputs))


def _assignments(block: ReferenceAttention) -> Iterator[list[str]]:
    """Yield a seed for each parameter; modules of the same kind exchange theirs."""
    kinds: dict[Any, list[str]] = {}
    for name, module in block.named_children():
        shapes = tuple((part, tuple(p.shape)) for part, p in module.named_parameters())
        if shapes:
            kind = {"wq": "stream", "wk": "stream", "wv": "v", "wo": "o"}.get(name)
            params = [step.params for step in block.plan.steps if step.module == name]
            key = kind or type(module).__name__, shapes, str(params)
            kinds.setdefault(key, []).append(name)
    orders = [[*permutations(range(len(names)))] for names in kinds.values()]
    for chosen in product(*orders):
        seeds = {
            name: f"{kind} {number}"
            for (kind, names), order in zip(kinds.items(), chosen, strict=True)
            for name, number in zip(names, order, strict=True)
        }
        yield [seeds[name.split(".")[0]] for name, _ in block.named_parameters()]
