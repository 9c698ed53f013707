"""Repair of illegal genomes by a beam search for the fewest edits that remove all violations.

One edit changes an operation, an operand or a field of the projections, or adds or bypasses a node.
In each step, all genomes one edit away (neighbours) are validated. The search continues from the
``BEAM`` neighbours with the fewest violations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from nas.genome import FLAGS, LABELS, STREAMS, Genome, Node, Ref
from nas.genome.primitives import get, names
from nas.genome.primitives.base import STREAM_OF_PORT
from nas.genome.types import infer
from nas.space.validation.policy import Policy
from nas.space.validation.validator import Violation, validate

MAX_EDITS: Final = 4
BEAM: Final = 6
MAX_NODES: Final = 24  # larger graphs are not searched: validating a neighbour takes too long
MAX_JUDGED: Final = 150_000  # sum of the nodes of all validated neighbours
USUAL_STATES: Final = 64  # states of a policy's automata; with more, fewer nodes are validated
# Operations that are tried first among repairs with equally many edits.
USUAL: Final = ("scaled_dot_product", "softmax", "weighted_sum", "linear", "gelu", "layer_norm")


def with_repairs(
    genome: Genome, policy: Policy, violations: Sequence[Violation]
) -> tuple[Violation, ...]:
    """Return the violations, each with the same repair: a legal genome close to ``genome``."""
    if not violations:
        return ()
    repair = nearest_legal(genome, policy)
    return tuple(replace(violation, repair=repair) for violation in violations)


def nearest_legal(genome: Genome, policy: Policy) -> Genome | None:
    """Return a genome without violations that is few edits away from ``genome``.

    If the search finds none, return standard attention whose values are the genome's output. If
    this breaks a rule, return standard attention alone; if this breaks a rule too, return None.

    Raises:
        GenomeError: a node names a primitive that does not exist.
    """
    repaired = _search(genome, policy) if 0 < len(genome.nodes) <= MAX_NODES else None
    for candidate in [repaired] if repaired else _rebuilt(genome):
        if not _count_problems(candidate, policy):
            return candidate
    return None


def _search(genome: Genome, policy: Policy) -> Genome | None:
    beam, visited, judged = [genome], {genome}, 0
    states = sum(rule.automaton.all_states.bit_length() for rule in policy.rules)
    weight = max(1, states // USUAL_STATES)
    for _ in range(MAX_EDITS):
        ranked: list[tuple[int, int, Genome]] = []
        for child in chain.from_iterable(_neighbours(parent, policy) for parent in beam):
            if child in visited:
                continue
            visited.add(child)
            judged += len(child.nodes) * weight
            if judged > MAX_JUDGED:
                return None
            problems = _count_problems(child, policy)
            if not problems:
                return child.pruned()
            ranked.append((problems, len(ranked), child))
        beam = [child for _, _, child in sorted(ranked, key=lambda r: r[:2])[:BEAM]]
    return None


def _count_problems(genome: Genome, policy: Policy) -> int:
    count = len(validate(genome, policy))
    return count if policy.file.types else count + len(infer(genome).problems)


def _rebuilt(genome: Genome) -> Iterator[Genome]:
    """Yield standard attention whose values are the genome's output, and then with ``v`` as values.

    The last genome that is yielded also has default projections, placement and mask.
    """
    last = len(genome.nodes) - 1
    score, weights = Node("scaled_dot_product", ("q", "k")), Node("softmax", (last + 1,))
    if genome.nodes:
        wrapped = (*genome.nodes, score, weights, Node("weighted_sum", (last + 2, last)))
        yield replace(genome, nodes=wrapped).pruned()
    standard = (score, replace(weights, inputs=(0,)), Node("weighted_sum", (1, "v")))
    yield replace(genome, nodes=standard)
    yield Genome(standard)


def _neighbours(genome: Genome, policy: Policy) -> Iterator[Genome]:
    """Yield all genomes that differ from ``genome`` by one edit of a node or of a projection field.

    Projection fields are edited first if a violation is about heads or widths, else last.
    """
    edits = [_inserted, _renamed, _bypassed, _extended, _rewired]
    rules = {violation.rule for violation in validate(genome, policy)}
    edits.insert(0 if rules & {"heads", "widths"} else len(edits), _relabelled)
    return chain.from_iterable(edit(genome) for edit in edits)


def _operations(arity: int) -> list[str]:
    ops = [n for n in names() if arity in get(n).arities]
    return sorted(ops, key=lambda n: (USUAL.index(n) if n in USUAL else len(USUAL), n))


def _inserted(genome: Genome) -> Iterator[Genome]:
    """Yield genomes with a new node: between a node and its operand, or after the output."""
    for index, node in enumerate(genome.nodes):
        moved = {place: place + 1 for place in range(index, len(genome.nodes))}
        later = [reader.renamed(moved) for reader in genome.nodes[index + 1 :]]
        for slot, ref in enumerate(node.inputs):
            for op in _operations(1):
                nodes = (Node(op, (ref,)), node.reading(slot, index), *later)
                yield replace(genome, nodes=(*genome.nodes[:index], *nodes))
    last = len(genome.nodes) - 1
    for op in _operations(2):
        for stream in ("v", "k", "q"):
            yield replace(genome, nodes=(*genome.nodes, Node(op, (last, stream))))


def _renamed(genome: Genome) -> Iterator[Genome]:
    """Yield genomes in which one node has another operation with default parameters."""
    for index, node in enumerate(genome.nodes):
        for op in _operations(len(node.inputs)):
            if op != node.op:
                yield genome.with_node(index, Node(op, node.inputs))


def _rewired(genome: Genome) -> Iterator[Genome]:
    """Yield genomes in which one node reads another stream or node at one of its operands."""
    for index, node in enumerate(genome.nodes):
        for slot, old in enumerate(node.inputs):
            for ref in _refs(index):
                if ref != old:
                    yield genome.with_node(index, node.reading(slot, ref))


def _extended(genome: Genome) -> Iterator[Genome]:
    """Yield genomes in which one node has one operand more or less."""
    for index, node in enumerate(genome.nodes):
        ports = get(node.op).signatures[0].inputs
        slot = len(node.inputs)
        usual = STREAM_OF_PORT.get(ports[slot].name, "v") if slot < len(ports) else "v"
        for ref in (usual, *_refs(index)):
            yield genome.with_node(index, replace(node, inputs=(*node.inputs, ref)))
        for slot in range(len(node.inputs)):
            yield genome.with_node(index, node.reading(slot))


def _bypassed(genome: Genome) -> Iterator[Genome]:
    """Yield genomes in which all readers of a node read one of its operands instead.

    Then yield genomes in which an earlier node is the output.
    """
    for index, node in enumerate(genome.nodes):
        for ref in dict.fromkeys(node.inputs):
            yield genome.bypassing(index, ref)
    for end in range(len(genome.nodes) - 1, 0, -1):
        yield replace(genome, nodes=genome.nodes[:end])


def _relabelled(genome: Genome) -> Iterator[Genome]:
    for name in (*FLAGS, *LABELS):
        choices: tuple[bool | str, ...] = (True, False) if name in FLAGS else LABELS[name]
        for value in choices:
            if value != getattr(genome.projections, name):
                changed: dict[str, Any] = {name: value}
                yield replace(genome, projections=replace(genome.projections, **changed))


def _refs(index: int) -> list[Ref]:
    return [*STREAMS[::-1], *range(index)]
