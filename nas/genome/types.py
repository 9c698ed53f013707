"""Types of a genome's streams and nodes, with symbolic heads and widths.

A type is ``tokens[h, w]``, ``scores[h]`` or ``weights[h]``. A head count h is a label of the
backbone's heads ("all", "1/2", ..., "one"); a width w is a label of the head width ("all",
"1/2", ...) or "model", the whole width. Types hold no sizes, so that a genome that type-checks runs
at every size at which its labels are whole numbers.

If operands have different head counts, the fewer heads are repeated; the ratio must be whole.
Widths are unified: a projected query or key takes the width of the operand that it is scored
against, by default the width that ``qk_dim`` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from nas.common.errors import GenomeError
from nas.common.text import plural
from nas.genome import LABELS, Genome, Projections, head_count, key_width
from nas.genome.primitives import get
from nas.genome.primitives.base import Kind, Primitive, Role, Signature

MODEL: Final = "model"


class Free(StrEnum):
    """The unknown width of the projected stream with that name."""

    Q = "q"
    K = "k"


class Type(NamedTuple):
    """The type of a tensor: kind, head label, and for tokens a width label."""

    kind: Kind
    heads: str
    width: str | None = None

    def __str__(self) -> str:
        heads = {"all": "H", "one": "1"}.get(self.heads, f"{self.heads} H")
        if self.width is None:
            return f"{self.kind.value}[{heads}]"
        widths = {"all": "d/H", MODEL: "d"}
        return f"{self.kind.value}[{heads}, {widths.get(self.width, f'{self.width} d/H')}]"

    def head_count(self, heads: int) -> int:
        """The number of heads in a backbone with ``heads``; GenomeError if it is not whole."""
        try:
            return head_count(self.heads, heads)
        except ValueError as error:
            raise GenomeError(f"{error}.") from None

    def channels(self, dim: int, heads: int) -> int:
        """The number of features per head of a token type."""
        assert self.width is not None, "only tokens have a width"
        return width_of(self.width, dim, heads)


class Problem(NamedTuple):
    """A type error: the rule, the node (None: the output), the found and the expected types."""

    rule: str
    node: int | None
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class Typing:
    """The types of a genome.

    Attributes:
        streams: type of ``q``, ``k`` and ``v``.
        nodes: type of each node's result; None for an ill-typed node.
        widths: for each node the width bound to the letter ``w`` of its signature, or None.
        signatures: for each node the signature of its primitive that matches the operands; the
            first signature if none matches.
        problems: empty for a genome that type-checks.
    """

    streams: dict[str, Type]
    nodes: tuple[Type | None, ...]
    widths: tuple[str | None, ...]
    signatures: tuple[Signature, ...]
    problems: tuple[Problem, ...]

    def role(self, node: int) -> Role:
        """The role of a node."""
        return self.signatures[node].role

    def of(self, ref: str | int) -> Type:
        """The type of a stream or of a well-typed node."""
        result = self.streams[ref] if isinstance(ref, str) else self.nodes[ref]
        assert result is not None, f"node {ref} has no type"
        return result


def width_of(label: str, dim: int, heads: int) -> int:
    """The number of features per head that a width label means."""
    return dim if label == MODEL else key_width(label, dim // heads)


def head_fraction(label: str) -> Fraction:
    """The fraction of the backbone's heads that a label means; 0 for "one"."""
    return Fraction({"all": "1", "one": "0"}.get(label, label))


def _met(a: str, b: str) -> str | None:
    more, fewer = (a, b) if head_fraction(a) >= head_fraction(b) else (b, a)
    is_whole = fewer == "one" or (head_fraction(more) / head_fraction(fewer)).denominator == 1
    return more if is_whole else None


# MEET[a, b]: the larger of two head counts; None if the smaller does not divide it.
MEET: Final = {(a, b): _met(a, b) for a in LABELS["q_heads"] for b in LABELS["q_heads"]}


def stream_types(projections: Projections) -> dict[str, Type]:
    """The types of the streams before inference; projected q and k have free widths."""
    raw_heads, raw_width = ("all", "all") if projections.raw == "slice" else ("one", MODEL)
    raw = Type(Kind.TOKENS, raw_heads, raw_width)
    kv = projections.kv_heads
    value_width = MODEL if projections.merge == "sum" else "all"
    return {
        "q": Type(Kind.TOKENS, projections.q_heads, Free.Q) if projections.has_wq else raw,
        "k": Type(Kind.TOKENS, kv, Free.K) if projections.has_wk else raw,
        "v": Type(Kind.TOKENS, kv, value_width) if projections.has_wv else raw,
    }


@lru_cache(maxsize=1024)
def infer(genome: Genome) -> Typing:
    """Infer the types of all streams and nodes; type errors are listed, not raised.

    Raises:
        GenomeError: a node names a primitive that does not exist.
    """
    inference = _Inference(genome)
    live = genome.live()
    for index in live:
        inference.visit(index)
    # Dead nodes are type-checked after the widths are decided.
    inference.settle()
    if len(live) < len(genome.nodes):
        for index in sorted(set(range(len(genome.nodes))) - set(live)):
            inference.visit(index)
    return inference.finish()


class _Inference:
    """One pass over the nodes; ``bound`` maps a free width to the width it was unified with."""

    def __init__(self, genome: Genome) -> None:
        self.genome = genome
        self.streams = stream_types(genome.projections)
        self.bound: dict[str, str] = {}
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
        self._apply(index, operands, primitive.least_heads(primitive.full(node.param_dict())))

    def _apply(self, index: int, operands: list[Type | None], heads: str) -> None:
        """Set the type of a node with at least ``heads`` heads."""
        signature, widths = self.signatures[index], dict[str, str]()
        for port, operand in zip(signature.inputs, operands, strict=True):
            if operand is None:  # its type error is already listed
                continue
            met = MEET.get((heads, operand.heads))
            if met is None:
                found = f"operands with {heads} and {operand.heads} heads"
                expected = "head counts of which one divides the other"
                self.problems.append(Problem("heads", index, found, expected))
                return
            heads = met
            if port.width is None or operand.width is None:
                continue
            bound = widths.setdefault(port.width, operand.width)
            if not self._unify(bound, operand.width):
                both = (_width(self._find(width)) for width in (bound, operand.width))
                found = f"operands of widths {' and '.join(both)}"
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
        if a == b:
            return True
        if isinstance(a, Free):
            self.bound[a] = b
        elif isinstance(b, Free):
            self.bound[b] = a
        else:
            return False
        return True

    def settle(self) -> None:
        """Decide the widths that are still free."""
        for free, width in {free: self._settle(free) for free in Free}.items():
            if isinstance(self._find(free), Free):
                self.bound[self._find(free)] = width

    def finish(self) -> Typing:
        streams = {s: self._settled(t) for s, t in self.streams.items()}
        nodes = tuple(None if t is None else self._settled(t) for t in self.types)
        widths = tuple(None if w is None else self._find(w) for w in self.widths)
        self.problems.sort(key=lambda p: -1 if p.node is None else p.node)
        output = _output_problem(self.genome, nodes)
        problems = (*self.problems, *([output] if output else []))
        return Typing(streams, nodes, widths, tuple(self.signatures), problems)

    def _settle(self, free: Free) -> str:
        """The width of a projected query or key: the unified width, by default qk_dim."""
        width, projections = self._find(free), self.genome.projections
        if isinstance(width, Free):
            return projections.qk_dim
        if projections.qk_dim != "all" and projections.has_projection(free.value):
            stream = f"a stream of width {_width(width)}"
            found = f"qk_dim: {projections.qk_dim}, with {free} scored against {stream}"
            self.problems.append(Problem("widths", None, found, "qk_dim: all"))
        return width

    def _settled(self, inferred: Type) -> Type:
        width = inferred.width
        return inferred if width is None else inferred._replace(width=self._find(width))


def _matching_signature(primitive: Primitive, operands: list[Type | None]) -> Signature | None:
    """The first signature for operands of these kinds; an ill-typed operand matches any kind."""
    for signature in primitive.signatures:
        pairs = zip(signature.inputs, operands, strict=False)
        fits = all(operand is None or operand.kind is port.kind for port, operand in pairs)
        if fits and len(signature.inputs) == len(operands):
            return signature
    return None


def _mismatch(index: int, primitive: Primitive, operands: list[Type | None]) -> Problem:
    """The type error of operands that match no signature."""
    if len(operands) not in primitive.arities:
        ways = ["(" + ", ".join(p.name for p in s.inputs) + ")" for s in primitive.signatures]
        arities = " or ".join(str(n) for n in primitive.arities)
        expected = f"{arities}: {' or '.join(dict.fromkeys(ways))}"
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


def _width(label: str) -> str:
    return {"all": "d/H", MODEL: "d"}.get(label, f"{label} d/H")
