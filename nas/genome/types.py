"""Type inference: the types of a genome's streams and nodes, with symbolic heads and widths.

A type is ``tokens[h, w]``, ``scores[h]``, ``weights[h]``, or forget gates: ``gates[h]``, one for
each head, or ``feature_gates[h, w]``. A head count h is a fraction of the backbone's heads ("all",
"1/2", ..., "one"), a width w of the head width, or "model" for the model width. Types hold no
sizes, so that a genome that type-checks runs at every size at which its labels are whole numbers.

If the operands of a node have different head counts, the heads of the smaller operand are
repeated; the ratio must be whole. A projected query or key gets the width of the tokens that it is
scored against. If that width is not determined either, ``qk_dim`` determines both widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final, NamedTuple

from nas.common.errors import GenomeError
from nas.common.text import plural
from nas.genome import Genome, Node, Projections, Ref, head_count, key_width
from nas.genome.primitives import full_params, get
from nas.genome.primitives.base import Kind, Primitive, Role, Signature
from nas.genome.primitives.signs import Sign

MODEL: Final = "model"


class Free(StrEnum):
    """A placeholder for a width of the stream ``q`` or ``k`` that types do not yet determine."""

    Q = "q"
    K = "k"


class Type(NamedTuple):
    """The type of a tensor: its kind, a head label, and for tokens a width label."""

    kind: Kind
    heads: str
    width: str | None = None

    def __str__(self) -> str:
        heads = {"all": "H", "one": "1"}.get(self.heads, f"{self.heads} H")
        width = "" if self.width is None else f", {_width_text(self.width)}"
        return f"{self.kind.value}[{heads}{width}]"

    def head_count(self, heads: int) -> int:
        """Return the number of heads in a backbone of ``heads``; GenomeError if it is not whole."""
        try:
            return head_count(self.heads, heads)
        except ValueError as error:
            raise GenomeError(f"{error}.") from None

    def channels(self, dim: int, heads: int) -> int:
        """Return the number of features per head of a tensor of tokens or gates."""
        if self.kind is Kind.GATES:
            return 1
        assert self.width is not None, "only tokens and feature gates have a width"
        return width_of(self.width, dim, heads)

    def token_width(self, dim: int, heads: int) -> int:
        """Return the number of features per token of tokens or gates, over all heads."""
        return self.head_count(heads) * self.channels(dim, heads)


class Problem(NamedTuple):
    """A type error."""

    rule: str  # the broken rule: "arity", "types", "heads", "widths", "output" or "empty"
    node: int | None  # None for an error of the streams or the output
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class Typing:
    """The types of a genome; the tuples except ``problems`` have an item for each node."""

    streams: dict[str, Type]
    nodes: tuple[Type | None, ...]  # of the nodes' results; None for an ill-typed node
    widths: tuple[str | None, ...]  # of the operands that the signature calls ``w``
    signatures: tuple[Signature, ...]  # that match the operands, or else the first ones
    problems: tuple[Problem, ...]

    def role(self, node: int) -> Role:
        """Return the role of the node with this index."""
        return self.signatures[node].role

    def of(self, ref: str | int) -> Type:
        """Return the type of a stream, or of the result of a well-typed node."""
        result = self.streams[ref] if isinstance(ref, str) else self.nodes[ref]
        assert result is not None, f"node {ref} has no type"
        return result


def width_of(label: str, dim: int, heads: int) -> int:
    """Return the number of features per head for a width label."""
    return dim if label == MODEL else key_width(label, dim // heads)


def head_fraction(label: str) -> Fraction:
    """Return the fraction of the backbone's heads for a head label; 0 for "one"."""
    return Fraction({"all": "1", "one": "0"}.get(label, label))


@cache
def common_heads(a: str, b: str) -> str | None:
    """Return the larger of two head labels; None if the smaller does not divide it."""
    fewer, more = sorted((a, b), key=head_fraction)
    is_whole = fewer == "one" or (head_fraction(more) / head_fraction(fewer)).denominator == 1
    return more if is_whole else None


@lru_cache(maxsize=1024)
def infer(genome: Genome) -> Typing:
    """Return all types and type errors; raise GenomeError if a primitive does not exist."""
    inference = _Inference(genome)
    live = genome.live()
    for index in live:
        inference.visit(index)
    # Dead nodes are type-checked too, but do not determine widths.
    inference.fix_widths()
    for index in sorted({*range(len(genome.nodes))} - {*live}):
        inference.visit(index)
    return inference.finish()


class _Inference:
    def __init__(self, genome: Genome) -> None:
        self.genome = genome
        self.streams = _stream_types(genome.projections)
        self.bound: dict[str, str] = {}  # the width that a placeholder (``Free``) equals
        count = len(genome.nodes)
        self.types: list[Type | None] = [None] * count
        self.widths: list[str | None] = [None] * count
        self.signatures: list[Signature] = [get(n.op).signatures[0] for n in genome.nodes]
        self.problems: list[Problem] = []

    def visit(self, index: int) -> None:
        node = self.genome.nodes[index]
        primitive = get(node.op)
        operands = [self.streams[r] if isinstance(r, str) else self.types[r] for r in node.inputs]
        signature = _matching_signature(primitive, operands)
        if signature is None:
            self.problems.append(_mismatch(index, primitive, operands))
            return
        self.signatures[index] = signature
        least = full_params(node).get(primitive.least_heads or "", "one")
        heads, widths = str(least), dict[str, str]()
        for port, operand in zip(signature.inputs, operands, strict=True):
            if operand is None:  # its type error is already listed
                continue
            common = common_heads(heads, operand.heads)
            if common is None:
                found = f"operands with {heads} and {operand.heads} heads"
                expected = "head counts of which one divides the other"
                self.problems.append(Problem("heads", index, found, expected))
                return
            heads = common
            if port.width is None or operand.width is None:
                continue
            bound = widths.setdefault(port.width, operand.width)
            if not self._unify(bound, operand.width):
                texts = (_width_text(self._find(width)) for width in (bound, operand.width))
                found = f"operands of widths {' and '.join(texts)}"
                self.problems.append(Problem("widths", index, found, "operands of one width"))
                return
        output = signature.output
        width = widths.get(output.width or "")
        if any(operands) and (output.width is None or width is not None):
            self.types[index] = Type(output.kind, heads, width)
        self.widths[index] = widths.get("w")

    def _find(self, width: str) -> str:
        while width in self.bound:
            width = self.bound[width]
        return width

    def _unify(self, a: str, b: str) -> bool:
        a, b = self._find(a), self._find(b)
        if a != b and isinstance(a, Free):
            self.bound[a] = b
        elif a != b and isinstance(b, Free):
            self.bound[b] = a
        return self._find(a) == self._find(b)

    def fix_widths(self) -> None:
        """Set undetermined widths of projected queries and keys to the genome's field ``qk_dim``.

        A ``qk_dim`` other than "all" is a type error if a width is determined already.
        """
        projections = self.genome.projections
        for free in Free:
            width = self._find(free)
            has_label = projections.qk_dim != "all" and projections.has_projection(free.value)
            if has_label and not isinstance(width, Free):
                stream = f"a stream of width {_width_text(width)}"
                found = f"qk_dim: {projections.qk_dim}, with {free} scored against {stream}"
                self.problems.append(Problem("widths", None, found, "qk_dim: all"))
        for free in Free:
            self._unify(free, projections.qk_dim)

    def finish(self) -> Typing:
        streams = {name: self._resolved(stream) for name, stream in self.streams.items()}
        nodes = tuple(None if node is None else self._resolved(node) for node in self.types)
        widths = tuple(None if width is None else self._find(width) for width in self.widths)
        self.problems.sort(key=lambda p: -1 if p.node is None else p.node)
        output = _output_problem(self.genome, nodes)
        problems = (*self.problems, *([output] if output else []))
        return Typing(streams, nodes, widths, tuple(self.signatures), problems)

    def _resolved(self, inferred: Type) -> Type:
        width = inferred.width
        return inferred if width is None else inferred._replace(width=self._find(width))


def _stream_types(projections: Projections) -> dict[str, Type]:
    raw_heads, raw_width = ("all", "all") if projections.raw == "slice" else ("one", MODEL)
    raw = Type(Kind.TOKENS, raw_heads, raw_width)
    kv = projections.kv_heads
    value_width = MODEL if projections.merge == "sum" else "all"
    return {
        "q": Type(Kind.TOKENS, projections.q_heads, Free.Q) if projections.has_wq else raw,
        "k": Type(Kind.TOKENS, kv, Free.K) if projections.has_wk else raw,
        "v": Type(Kind.TOKENS, kv, value_width) if projections.has_wv else raw,
    }


def _matching_signature(primitive: Primitive, operands: list[Type | None]) -> Signature | None:
    for signature in primitive.signatures:
        pairs = zip(signature.inputs, operands, strict=False)
        fits = all(operand is None or operand.kind is port.kind for port, operand in pairs)
        if fits and len(signature.inputs) == len(operands):
            return signature
    return None


def _mismatch(index: int, primitive: Primitive, operands: list[Type | None]) -> Problem:
    arities = sorted({len(signature.inputs) for signature in primitive.signatures})
    if len(operands) not in arities:
        ways = ["(" + ", ".join(p.name for p in s.inputs) + ")" for s in primitive.signatures]
        counts = " or ".join(map(str, arities))
        expected = f"{counts}: {' or '.join(dict.fromkeys(ways))}"
        count = plural(len(operands), "input") if operands else "no inputs"
        return Problem("arity", index, count, expected)
    found = ", ".join(o.kind.value if o else "anything" for o in operands)
    ways = [", ".join(f"{p.name}: {p.kind.value}" for p in s.inputs) for s in primitive.signatures]
    return Problem("types", index, f"({found})", " or ".join(f"({way})" for way in ways))


def _output_problem(genome: Genome, nodes: tuple[Type | None, ...]) -> Problem | None:
    if not nodes:
        return Problem("empty", None, "no nodes", "at least one node; the last is the output")
    output = nodes[-1]
    if output is None:
        return None
    if output.kind is not Kind.TOKENS:
        return Problem("output", len(nodes) - 1, str(output), "tokens")
    projections = genome.projections
    if projections.has_wo:
        return None
    is_single = projections.merge == "sum" or output.heads == "one"
    is_model_width = projections.merge == "concat" and output.heads == output.width == "all"
    if is_model_width or (is_single and output.width == MODEL):
        return None
    found = f"heads merged from {output} by {projections.merge}, without W_O"
    return Problem("output", None, found, "the model width d, or has_wo: true")


def _width_text(label: str) -> str:
    return {"all": "d/H", MODEL: "d"}.get(label, f"{label} d/H")


@lru_cache(maxsize=16)
def _signs(nodes: tuple[Node, ...]) -> tuple[Sign, ...]:
    signs: list[Sign] = []
    for node in nodes:
        operands = [signs[ref] if isinstance(ref, int) else Sign.UNKNOWN for ref in node.inputs]
        is_own = node.op == "exclude_value" and len({*node.inputs}) == 1  # minus all of itself
        signs.append(Sign.ZERO if is_own else get(node.op).sign(operands))
    return tuple(signs)


def is_non_negative(genome: Genome, ref: Ref) -> bool:
    """Return whether the result of a node is provably never negative."""
    return isinstance(ref, int) and Sign.NON_NEGATIVE in _signs(genome.nodes)[ref]


def is_constant(genome: Genome) -> bool:
    """Return whether the output of a well-typed genome is provably the same for every input."""
    constant: list[bool] = []
    for node, sign in zip(genome.nodes, _signs(genome.nodes), strict=True):
        reads_constants = all(isinstance(ref, int) and constant[ref] for ref in node.inputs)
        reads_tokens = "x" in get(node.op).extras or not node.inputs
        constant.append(sign is Sign.ZERO or (reads_constants and not reads_tokens))
    return constant[-1]
