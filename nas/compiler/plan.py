"""Plans, which are type-checked genomes as lists of primitive calls, and genomes at model sizes.

Head counts and widths in a plan are labels, such as "all" or "1/2", so that a plan is valid at all
model sizes. The interpreter turns labels into numbers, and source turns them into expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from torch import nn

from nas.common.errors import GenomeError, ViolationError
from nas.genome import STREAMS, Genome, ModelSizes, ParamValue, Placement, Ref, Rest
from nas.genome.canonical import canonicalise, normal_digest, resolved_digest
from nas.genome.primitives import Primitive, check_vocabulary, full_params, get
from nas.genome.primitives.base import Kind, Port, Role, Sizes
from nas.genome.types import MODEL, Type, Typing, head_fraction, infer, width_of

T = TypeVar("T")


@dataclass(frozen=True)
class Stream:
    """The input q, k or v of a genome's graph: the module's input, or a projection of it."""

    name: str
    type: Type
    is_projected: bool


@dataclass(frozen=True)
class Operand:
    """An argument of a primitive call: the result of node ``ref``, or the stream ``ref``."""

    ref: Ref
    variable: str  # in generated source
    type: Type
    port: Port
    is_repeated: bool  # has fewer heads than the call, so that heads are repeated

    @property
    def is_paired(self) -> bool:
        """Whether the operand has an element for each pair of query and key."""
        return self.port.kind.is_paired


@dataclass(frozen=True)
class Step:
    """The primitive call of a node: ``variable = self.module(operands, ...)``."""

    index: int  # of the node
    module: str
    variable: str
    primitive: Primitive
    params: dict[str, ParamValue]  # also those that have their default
    role: Role
    type: Type  # of the result
    width: str | None  # of operands that are tokens; None if all are scores or weights
    operands: tuple[Operand, ...]
    is_filtered: bool  # whether an earlier filter may have excluded keys by a score of -inf

    @property
    def heads(self) -> str:
        """The label of the result's head count."""
        return self.type.heads

    @property
    def is_paired(self) -> bool:
        """Whether an operand or the result has an element for each pair of query and key."""
        return self.type.kind.is_paired or any(operand.is_paired for operand in self.operands)

    @property
    def rank(self) -> str | None:
        """The label of the width r of a step that multiplies scores by 1 / sqrt(r)."""
        return "all" if self.width == MODEL else self.width

    def build(self, arguments: Mapping[str, Any], dim: int, heads: int) -> nn.Module:
        """Return the step's module; raise GenomeError if it does not exist at these sizes."""
        try:
            return self.primitive.module(**arguments, **self.params)
        except ValueError as error:
            raise GenomeError(f"dim {dim}, heads {heads}: {error}.") from None

    def bind(self, sizes: Mapping[str, T]) -> dict[str, T]:
        """Return those sizes, numbers or source texts, that the module's constructor takes."""
        if "width" in sizes:
            sizes = {**sizes, "head_width": sizes["width"]}
        return {name: sizes[name] for name in self.primitive.sizes if name in sizes}


@dataclass(frozen=True)
class Plan:
    """A type-checked genome as a list of primitive calls, the last of which gives the output."""

    genome: Genome
    streams: tuple[Stream, ...]  # those that the genome uses
    steps: tuple[Step, ...]  # each after the steps whose results it reads
    output: Type  # before heads are merged
    unsafe: tuple[str, ...]  # primitives that depend on later tokens: the mechanism is not causal

    def remarks(self, heads: int) -> tuple[str, ...]:
        """Return a warning for each fraction of the heads below one head, which becomes one."""
        labels = {stream.type.heads for stream in self.streams if stream.is_projected}
        return tuple(
            f"{label} of {heads} heads is less than one head: one is used"
            for label in sorted(labels - {"all", "one"})
            if head_fraction(label) * heads < 1
        )

    @property
    def is_windowed(self) -> bool:
        """Whether each token sees only a window of neighbouring tokens, and global tokens."""
        return self.genome.visibility.window is not None

    def sizes(self, step: Step, dim: int, heads: int, bias: bool) -> dict[str, int | bool]:
        """Return the sizes that the constructor of a step's module takes."""
        arguments: dict[str, int | bool] = {"dim": dim, "bias": bias, "filtered": step.is_filtered}
        if "heads" in step.primitive.sizes:
            arguments["heads"] = step.type.head_count(heads)
        if step.width is not None and step.rank is not None:
            arguments["width"] = width_of(step.width, dim, heads)
            arguments["rank"] = width_of(step.rank, dim, heads)
        return step.bind(arguments)

    def call_sizes(self, step: Step, sizes: ModelSizes) -> Sizes:
        """Return the sizes of a step for the primitives' formulas of costs."""
        dim, heads, _, tokens = sizes
        width = 0 if step.width is None else width_of(step.width, dim, heads)
        gates = max(
            (o.type.channels(dim, heads) for o in step.operands if o.port.kind.is_gates), default=1
        )
        return Sizes(dim, step.type.head_count(heads), width, tokens, gates=gates)

    def linears(self, dim: int, heads: int) -> dict[str, tuple[int, int]]:
        """Return the input and output width of each projection, by name: "q", "k", "v", "o"."""
        widths = {
            stream.name: (dim, stream.type.token_width(dim, heads))
            for stream in self.streams
            if stream.is_projected
        }
        if self.genome.projections.has_wo:
            is_sum = self.genome.projections.merge == "sum"
            width = self.output.channels if is_sum else self.output.token_width
            widths["o"] = width(dim, heads), dim
        return widths


def check_sizes(dim: int, heads: int) -> None:
    """Raise GenomeError if dim or heads is below one, or if heads does not divide dim."""
    if dim < 1 or heads < 1 or dim % heads:
        raise GenomeError(
            f"dim {dim} and heads {heads}: both must be positive, and heads must divide dim."
        )


def make_plan(genome: Genome) -> Plan:
    """Return the plan of a genome's normal form (simplified, canonical order) at every size.

    Raises:
        GenomeError: a primitive or parameter does not exist.
        ViolationError: the genome does not type-check.
    """
    genome = check_vocabulary(genome)
    _check_types(genome, infer(genome))
    return plan_as_written(canonicalise(genome))


def plan_as_written(genome: Genome) -> Plan:
    """Return the plan of a genome that is not normalised, or raise ViolationError."""
    typing = infer(genome)
    _check_types(genome, typing)
    steps: list[Step] = []
    for index in range(len(genome.nodes)):
        steps.append(_step(genome, index, typing, steps))
    used = {ref for node in genome.nodes for ref in node.inputs if isinstance(ref, str)}
    streams = tuple(
        Stream(name, typing.streams[name], genome.projections.has_projection(name))
        for name in STREAMS
        if name in used
    )
    unsafe = tuple(
        sorted({s.primitive.name for s in steps if not s.primitive.is_causal_safe(s.params)})
    )
    return Plan(genome, streams, tuple(steps), typing.of(len(genome.nodes) - 1), unsafe)


def _check_types(genome: Genome, typing: Typing) -> None:
    if typing.problems:
        first = typing.problems[0]
        op = "" if first.node is None else f"node {first.node} ({genome.nodes[first.node].op})"
        raise ViolationError(
            f"{first.rule}: {op or 'the graph'} has {first.found}; expected {first.expected}."
        )


def _step(genome: Genome, index: int, typing: Typing, before: list[Step]) -> Step:
    node, signature = genome.nodes[index], typing.signatures[index]
    primitive, result = get(node.op), typing.of(index)
    operands = []
    for slot, port in signature.arguments():
        ref = node.inputs[slot]
        type_ = typing.of(ref)
        operands.append(
            Operand(ref, _variable(ref, type_), type_, port, type_.heads != result.heads)
        )
    read = [before[ref] for ref in node.inputs if isinstance(ref, int)]
    scores = [step for step in read if step.type.kind is Kind.SCORES]
    return Step(
        index,
        f"{node.op}_{index}",
        _variable(index, result),
        primitive,
        full_params(node),
        signature.role,
        result,
        typing.widths[index],
        tuple(operands),
        any(s.is_filtered or s.primitive.is_filter for s in scores),
    )


def _variable(ref: Ref, ref_type: Type) -> str:
    return ref if isinstance(ref, str) else f"{ref_type.kind.value}_{ref}"


@dataclass(frozen=True)
class ResolvedGenome:
    """A genome in normal form at given model sizes, as ``resolve`` returns it.

    Genomes with the same ``key`` are the same mechanism, with the same training. An ill-typed
    genome has no plan.
    """

    genome: Genome
    sizes: ModelSizes
    is_causal: bool | None
    key: str

    @cached_property
    def digest(self) -> str:
        """The digest of the normal form, which identifies the genome in files of runs."""
        return normal_digest(self.genome)

    @cached_property
    def plan(self) -> Plan:
        """The plan, or ViolationError if the genome does not type-check."""
        return plan_as_written(self.genome)

    def __reduce__(self) -> tuple[Any, ...]:
        # The cached plan is not pickled.
        return type(self), (self.genome, self.sizes, self.is_causal, self.key)


def resolve(genome: Genome, sizes: ModelSizes, is_causal: bool | None = False) -> ResolvedGenome:
    """Return a genome in normal form (simplified, in canonical order) at given sizes.

    If ``is_causal`` is None, the normal form is valid for causal attention and for other.

    Raises:
        GenomeError: a primitive does not exist; the sizes are not valid, or have no whole number of
            heads or key features for a fraction in the genome.
    """
    check_sizes(sizes.dim, sizes.heads)
    form = canonicalise(genome, sizes, is_causal=is_causal)
    return ResolvedGenome(form, sizes, is_causal, resolved_digest(form, sizes))


def rest_attention(resolved: ResolvedGenome) -> ResolvedGenome:
    """Return the attention of the layers that do not hold the mechanism."""
    return _rest(resolved.genome.placement.rest, resolved.sizes, resolved.is_causal)


@lru_cache(maxsize=64)
def _rest(rest: Rest, sizes: ModelSizes, is_causal: bool | None) -> ResolvedGenome:
    return resolve(Genome((), placement=Placement(rest=rest)).rest(), sizes, is_causal)
