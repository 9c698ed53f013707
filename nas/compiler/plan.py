"""Plans: a type-checked genome as a list of primitive calls.

The interpreter and the source writers read the plan. Head counts and widths are labels, such as
"all" or "1/2", so that a plan is valid at every model size. The interpreter turns labels into
numbers, and generated source turns them into expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from nas.common.errors import ViolationError
from nas.genome import STREAMS, Genome, ModelSizes, ParamValue, Ref
from nas.genome.canonical import canonicalise
from nas.genome.primitives import Primitive, check_vocabulary, get
from nas.genome.primitives.base import Kind, Port, Role, Sizes
from nas.genome.types import MODEL, Type, Typing, head_fraction, infer, width_of

T = TypeVar("T")


@dataclass(frozen=True)
class Stream:
    """One of the inputs ``q``, ``k`` and ``v`` of a genome's graph.

    Attributes:
        is_projected: whether the stream is a projection of the input of the attention module;
            otherwise the stream is that input.
    """

    name: str
    type: Type
    is_projected: bool


@dataclass(frozen=True)
class Operand:
    """An argument of a primitive call.

    Attributes:
        ref: index of the node, or name of the stream, that the operand comes from.
        variable: the variable in generated source that contains the operand.
        port: the declaration of the operand in the primitive's signature.
        is_repeated: whether the operand has fewer heads than the call, so that heads are repeated.
    """

    ref: Ref
    variable: str
    type: Type
    port: Port
    is_repeated: bool

    @property
    def is_paired(self) -> bool:
        """Whether the operand has an element for each pair of query and key."""
        return self.port.kind.is_paired


@dataclass(frozen=True)
class Step:
    """One primitive call of a plan: ``variable = self.module(operands, ...)``.

    Attributes:
        index: index of the node in the genome.
        module: the attribute of the attention module that contains the primitive's module.
        variable: the variable in generated source to which the result is assigned.
        params: values of all parameters of the primitive.
        role: what the primitive does with these operands, such as ``score`` or ``normalize``.
        type: the type of the result, with its number of heads.
        width: label of the feature width of operands that are tokens; None if all operands are
            scores or weights.
        is_filtered: whether an earlier filter may have excluded keys by a score of -inf.
    """

    index: int
    module: str
    variable: str
    primitive: Primitive
    params: dict[str, ParamValue]
    role: Role
    type: Type
    width: str | None
    operands: tuple[Operand, ...]
    is_filtered: bool

    @property
    def heads(self) -> str:
        """Return the label of the call's head count."""
        return self.type.heads

    @property
    def makes_tokens(self) -> bool:
        """Whether the result consists of tokens or gates, not of scores or weights."""
        return not self.type.kind.is_paired

    @property
    def is_paired(self) -> bool:
        """Whether an operand or the result has an element for each pair of query and key."""
        return not self.makes_tokens or any(operand.is_paired for operand in self.operands)

    @property
    def rank(self) -> str | None:
        """Return the label of the width r, where the step multiplies scores by 1 / sqrt(r).

        This is the width of the operands, or the width of a head if operands have the model's
        width.
        """
        return "all" if self.width == MODEL else self.width

    def bind(self, sizes: Mapping[str, T]) -> dict[str, T]:
        """Return those of the given sizes that the constructor of the primitive's module takes.

        Args:
            sizes: ``dim``, ``heads`` (of this call), ``width``, ``rank``, ``bias`` and ``filtered``
                by name, as numbers or as source texts.
        """
        if "width" in sizes:
            sizes = {**sizes, "head_width": sizes["width"]}
        return {name: sizes[name] for name in self.primitive.sizes if name in sizes}


@dataclass(frozen=True)
class Plan:
    """A genome as a list of primitive calls.

    Attributes:
        streams: those of the inputs q, k and v that the genome uses.
        steps: the calls, each after the calls whose results it reads. The result of the last call
            is the output.
        output: the type of the output, before heads are merged.
        unsafe: names of primitives whose results depend on later tokens, so that the mechanism
            cannot be causal.
    """

    genome: Genome
    streams: tuple[Stream, ...]
    steps: tuple[Step, ...]
    output: Type
    unsafe: tuple[str, ...]

    @property
    def cautions(self) -> tuple[str, ...]:
        """Return warnings about parameter values with which a primitive may never train."""
        texts = (step.primitive.check(step.params) for step in self.steps)
        return tuple(dict.fromkeys(text for text in texts if text))

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
        """Return the sizes that the constructor of a step's module takes, as numbers by name."""
        arguments: dict[str, int | bool] = {"dim": dim, "bias": bias, "filtered": step.is_filtered}
        if "heads" in step.primitive.sizes:
            arguments["heads"] = step.type.head_count(heads)
        if step.width is not None and step.rank is not None:
            arguments["width"] = width_of(step.width, dim, heads)
            arguments["rank"] = width_of(step.rank, dim, heads)
        return step.bind(arguments)

    def call_sizes(self, step: Step, dim: int, heads: int, tokens: int) -> Sizes:
        """Return the sizes of a step for ``tokens`` tokens, as input for formulas of costs."""
        width = 0 if step.width is None else width_of(step.width, dim, heads)
        gates = max(
            (o.type.channels(dim, heads) for o in step.operands if o.port.kind.is_gates), default=1
        )
        return Sizes(dim, step.type.head_count(heads), width, tokens, gates=gates)

    def merged_width(self, dim: int, heads: int) -> int:
        """Return the width of the heads after they are merged, before the projection W_O."""
        width = self.output.channels(dim, heads)
        is_sum = self.genome.projections.merge == "sum"
        return width if is_sum else width * self.output.head_count(heads)


def make_plan(genome: Genome, sizes: ModelSizes | None = None) -> Plan:
    """Return the plan of a genome's normal form (simplified, in canonical order).

    Args:
        sizes: model sizes of the normal form; None for the normal form that is valid at every size.

    Raises:
        GenomeError: a primitive or parameter does not exist.
        ViolationError: the genome does not type-check.
    """
    genome = check_vocabulary(genome)
    _check_types(genome, infer(genome))
    return plan_as_written(canonicalise(genome, sizes))


def plan_as_written(genome: Genome, typing: Typing | None = None) -> Plan:
    """Return the plan of a genome with one call for each node, without normalising it.

    Args:
        typing: the types of the genome; None to infer them.

    Raises:
        ViolationError: the genome does not type-check.
    """
    typing = typing or infer(genome)
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
        primitive.full(node.param_dict()),
        signature.role,
        result,
        typing.widths[index],
        tuple(operands),
        any(s.is_filtered or getattr(s.primitive.module, "is_filter", False) for s in scores),
    )


def _variable(ref: Ref, ref_type: Type) -> str:
    return ref if isinstance(ref, str) else f"{ref_type.kind.value}_{ref}"
