"""The plan: a canonical, typed genome as a list of calls, the one input of every back end.

Heads and widths stay labels, so that one plan serves every size; a label becomes a number
where a module is built (the interpreter) or an expression (the emitted source).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.canonical import canonicalise
from nas.errors import ViolationError
from nas.primitives import Primitive, check_vocabulary, get
from nas.primitives.base import Kind, Sizes
from nas.types import MODEL, Type, Typing, infer

if TYPE_CHECKING:
    from nas.genome import Genome, ParamValue, Ref


@dataclass(frozen=True)
class Stream:
    """``q``, ``k`` or ``v`` as the graph reads it; raw streams that coincide are one."""

    name: str
    type: Type
    is_projected: bool


@dataclass(frozen=True)
class Operand:
    """What a call reads, and whether its heads must first be repeated to the call's."""

    ref: Ref
    variable: str
    is_repeated: bool

    @property
    def is_paired(self) -> bool:
        """Whether it holds a number for each pair of query and key."""
        return _is_pair(self.variable)


@dataclass(frozen=True)
class Step:
    """One call: ``variable = self.module(operands, extras)``.

    Attributes:
        stage: how many aggregations lie between the input and this call, its own not counted.
    """

    index: int
    module: str
    variable: str
    primitive: Primitive
    params: dict[str, ParamValue]
    heads: str
    width: str | None
    operands: tuple[Operand, ...]
    is_filtered: bool
    stage: int

    @property
    def is_paired(self) -> bool:
        """Whether the call is about pairs of query and key, not about tokens alone."""
        return _is_pair(self.variable) or any(operand.is_paired for operand in self.operands)


@dataclass(frozen=True)
class Plan:
    """A genome ready to run.

    Attributes:
        unsafe: the primitives that see later tokens; empty for a causal-safe genome.
    """

    genome: Genome
    streams: tuple[Stream, ...]
    steps: tuple[Step, ...]
    output: Type
    unsafe: tuple[str, ...]

    @property
    def needs_mask(self) -> bool:
        """Whether any call asks for the mask."""
        return any("mask" in step.primitive.extras for step in self.steps)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a person should know before they train this."""
        found = (step.primitive.caution(step.params) for step in self.steps)
        return tuple(dict.fromkeys(text for text in found if text))

    @property
    def is_windowed(self) -> bool:
        """Whether the mechanism has a mask of its own."""
        return self.genome.visibility.window is not None

    @property
    def is_blockwise(self) -> bool:
        """Whether the calls about pairs may be made for some queries at a time."""
        stages: dict[Ref, int] = {step.index: step.stage for step in self.steps}
        has_gaps = self.genome.visibility.global_tokens > 0
        for step in self.steps:
            if not step.is_paired:
                continue
            found = step.primitive
            if found.needs_all_tokens or found.is_stateful(step.params):
                return False
            if found.is_positional and has_gaps:
                return False
            # Weights of an earlier stage are gone with their block.
            if any(o.is_paired and stages[o.ref] != step.stage for o in step.operands):
                return False
        return True

    def sizes(self, step: Step, dim: int, heads: int, bias: bool) -> dict[str, int | bool]:
        """The size arguments that a step's module asks for."""
        found = Type(Kind.TOKENS, step.heads, step.width)
        known: dict[str, int | bool] = {"dim": dim, "bias": bias, "filtered": step.is_filtered}
        if "heads" in step.primitive.sizes:
            known["heads"] = found.head_count(heads)
        if step.width is not None:
            known["width"] = known["head_width"] = found.channels(dim, heads)
            known["rank"] = rank(found).channels(dim, heads)
        return {name: known[name] for name in step.primitive.sizes}

    def call_sizes(self, step: Step, dim: int, heads: int, tokens: int) -> Sizes:
        """The sizes at which a step runs: what formulas of its cost are written in."""
        found = Type(Kind.TOKENS, step.heads, step.width)
        width = found.channels(dim, heads) if step.width is not None else 0
        return Sizes(dim, found.head_count(heads), width, tokens)

    def merged_width(self, dim: int, heads: int) -> int:
        """Width of the merged heads, before W_O."""
        width = self.output.channels(dim, heads)
        is_sum = self.genome.projections.merge == "sum"
        return width if is_sum else width * self.output.head_count(heads)


def rank(found: Type) -> Type:
    """The type whose width scales scores: whole tokens count as the head merged into them."""
    return found._replace(width="all") if found.width == MODEL else found


def make_plan(genome: Genome) -> Plan:
    """Canonicalise, type and order a genome.

    Raises:
        GenomeError: a primitive or parameter does not exist.
        ViolationError: the genome does not type-check.
    """
    genome = check_vocabulary(genome)
    problems = infer(genome).problems
    if problems:
        first = problems[0]
        op = "" if first.node is None else f"node {first.node} ({genome.nodes[first.node].op})"
        raise ViolationError(
            f"{first.rule}: {op or 'the graph'} has {first.found}; expected {first.expected}."
        )
    genome = canonicalise(genome)
    typing = infer(genome)
    assert not typing.problems, "the canonical form of a well-typed genome is well-typed"
    steps: list[Step] = []
    for index in range(len(genome.nodes)):
        steps.append(_step(genome, index, typing, steps))
    used = {ref for node in genome.nodes for ref in node.inputs if isinstance(ref, str)}
    streams = tuple(
        Stream(name, typing.streams[name], genome.projections.has_projection(name))
        for name in ("q", "k", "v")
        if name in used
    )
    unsafe = tuple(
        sorted({s.primitive.name for s in steps if not s.primitive.is_causal_safe(s.params)})
    )
    return Plan(genome, streams, tuple(steps), typing.of(len(genome.nodes) - 1), unsafe)


def _step(genome: Genome, index: int, typing: Typing, before: list[Step]) -> Step:
    node = genome.nodes[index]
    primitive = get(node.op)
    result = typing.of(index)
    operands = []
    for ref in node.inputs:
        found = typing.of(ref)
        operands.append(Operand(ref, _variable(ref, found), found.heads != result.heads))
    scores = [
        before[r] for r in node.inputs if isinstance(r, int) and typing.of(r).kind is Kind.SCORES
    ]
    return Step(
        index,
        f"{node.op}_{index}",
        _variable(index, result),
        primitive,
        primitive.full(node.param_dict()),
        result.heads,
        typing.widths[index],
        tuple(operands),
        any(s.is_filtered or getattr(s.primitive.module, "is_filter", False) for s in scores),
        max((_available(before[r]) for r in node.inputs if isinstance(r, int)), default=0),
    )


def _available(step: Step) -> int:
    """The stage of those who read a call: after the blocks of its own, if it aggregates."""
    return step.stage + int(step.is_paired and step.variable.startswith(Kind.TOKENS))


def _is_pair(variable: str) -> bool:
    return variable.startswith((Kind.SCORES, Kind.WEIGHTS))


def _variable(ref: Ref, found: Type) -> str:
    return ref if isinstance(ref, str) else f"{found.kind.value}_{ref}"
