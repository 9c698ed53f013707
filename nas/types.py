"""Types of a genome: what each stream and node holds, with symbolic heads and widths.

A type is ``tokens[h, w]``, ``scores[h]`` or ``weights[h]``. A head count h is a label of the
backbone's heads ("all", "1/2", ..., "one"); a width w is a label of the head width ("all",
"1/2", ...) or "model", the whole width. Nothing here knows a size, so a genome that
type-checks runs at every size at which its labels are whole numbers.

Heads meet: of two counts the fewer are repeated, and the ratio must be whole. Widths unify:
a projected query or key takes the width of what it is scored against, and where nothing
decides, the one that ``qk_dim`` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from nas.errors import GenomeError
from nas.genome import LABELS, key_width, share
from nas.primitives import get
from nas.primitives.base import Kind

if TYPE_CHECKING:
    from nas.genome import Genome, Projections
    from nas.primitives.base import Primitive, Role, Signature

MODEL: Final = "model"


class Free(StrEnum):
    """A width that inference has yet to find: of the projected stream with that name."""

    Q = "q"
    K = "k"


class Type(NamedTuple):
    """What a tensor holds: kind, head label, and for tokens a width label."""

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
        """The number of heads in a backbone of ``heads``; GenomeError where it is no whole one."""
        try:
            return share(self.heads, heads)
        except ValueError as error:
            raise GenomeError(f"{error}.") from None

    def channels(self, dim: int, heads: int) -> int:
        """The width of one head's features, for tokens."""
        assert self.width is not None, "only tokens have a width"
        return width_of(self.width, dim, heads)


class Problem(NamedTuple):
    """Why a genome has no types: the rule broken, the node (None: the output), and the words."""

    rule: str
    node: int | None
    found: str
    expected: str


@dataclass(frozen=True, slots=True)
class Typing:
    """The types of a genome.

    Attributes:
        streams: type of ``q``, ``k`` and ``v``.
        nodes: type of each node's result; None where it has none.
        widths: for each node the width that its letter ``w`` is bound to, or None.
        signatures: for each node the reading of its primitive that applies (the first one, where
            a problem says that none does).
        problems: empty for a genome that type-checks.
    """

    streams: dict[str, Type]
    nodes: tuple[Type | None, ...]
    widths: tuple[str | None, ...]
    signatures: tuple[Signature, ...]
    problems: tuple[Problem, ...]

    def role(self, node: int) -> Role:
        """The role that a node plays."""
        return self.signatures[node].role

    def of(self, ref: str | int) -> Type:
        """The type of a stream or of a well-typed node."""
        found = self.streams[ref] if isinstance(ref, str) else self.nodes[ref]
        assert found is not None, f"node {ref} has no type"
        return found


def width_of(label: str, dim: int, heads: int) -> int:
    """How many features of a head a width label means."""
    return dim if label == MODEL else key_width(label, dim // heads)


def share_of(label: str) -> Fraction:
    """The share of the backbone's heads that a label names; 0 for one head, whatever its share."""
    return Fraction({"all": "1", "one": "0"}.get(label, label))


def _meet_table() -> dict[tuple[str, str], str | None]:
    table: dict[tuple[str, str], str | None] = {}
    for a in LABELS["q_heads"]:
        for b in LABELS["q_heads"]:
            more, fewer = (a, b) if share_of(a) >= share_of(b) else (b, a)
            is_whole = fewer == "one" or (share_of(more) / share_of(fewer)).denominator == 1
            table[a, b] = more if is_whole else None
    return table


# meet[a, b]: the head count of two operands together, None where neither divides the other.
MEET: Final = _meet_table()


def stream_types(projections: Projections) -> dict[str, Type]:
    """The streams' types before inference; widths of projected q and k are still free."""
    raw_heads, raw_width = ("all", "all") if projections.raw == "slice" else ("one", MODEL)
    raw = Type(Kind.TOKENS, raw_heads, raw_width)
    kv = projections.kv_heads
    value_width = MODEL if projections.merge == "sum" else "all"
    return {
        "q": Type(Kind.TOKENS, projections.q_heads, Free.Q) if projections.has_wq else raw,
        "k": Type(Kind.TOKENS, kv, Free.K) if projections.has_wk else raw,
        "v": Type(Kind.TOKENS, kv, value_width) if projections.has_wv else raw,
    }


def infer(genome: Genome) -> Typing:
    """Find the types of all streams and nodes; problems are listed, never raised.

    Raises:
        GenomeError: a node names a primitive that does not exist.
    """
    inference = _Inference(genome)
    live = genome.live()
    for index in live:
        inference.visit(index)
    # What reaches no output must be well typed too, but decides no width.
    inference.settle()
    if len(live) < len(genome.nodes):
        for index in sorted(set(range(len(genome.nodes))) - set(live)):
            inference.visit(index)
    return inference.finish()


class _Inference:
    """One pass over the nodes; ``bound`` maps a free width to what it was unified with."""

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
        streams, types = self.streams, self.types
        operands = [streams[r] if isinstance(r, str) else types[r] for r in node.inputs]
        signature = _reading(primitive, operands)
        if signature is None:
            self._fail(index, primitive, operands)
        else:
            self.signatures[index] = signature
            least = primitive.least_heads(primitive.full(node.param_dict()))
            self._apply(index, signature, operands, least)

    def _apply(
        self, index: int, signature: Signature, operands: list[Type | None], least: str
    ) -> None:
        heads: str | None = None
        widths: dict[str, str] = {}
        for port, operand in zip(signature.inputs, operands, strict=True):
            if operand is None:  # its own problem is listed already
                continue
            met = MEET.get((least if heads is None else heads, operand.heads))
            if met is None:
                self._problem(
                    "heads",
                    index,
                    f"operands with {heads} and {operand.heads} heads",
                    "head counts of which one divides the other",
                )
                return
            heads = met
            if port.width is not None and operand.width is not None:
                known = widths.get(port.width)
                if known is None:
                    widths[port.width] = operand.width
                elif not self._unify(known, operand.width):
                    self._problem(
                        "widths",
                        index,
                        f"operands of widths {_width(self._find(known))} and "
                        f"{_width(self._find(operand.width))}",
                        "operands of one width",
                    )
                    return
        self._result(index, signature, heads, widths)

    def _result(
        self, index: int, signature: Signature, heads: str | None, widths: dict[str, str]
    ) -> None:
        width = widths.get(signature.output.width or "")
        if heads is not None and (signature.output.width is None or width is not None):
            self.types[index] = Type(signature.output.kind, heads, width)
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

    def _fail(self, index: int, primitive: Primitive, operands: list[Type | None]) -> None:
        if len(operands) not in primitive.arities:
            ways = ["(" + ", ".join(p.name for p in s.inputs) + ")" for s in primitive.signatures]
            ports = " or ".join(dict.fromkeys(ways))
            arities = " or ".join(str(n) for n in primitive.arities)
            self._problem("arity", index, _inputs(len(operands)), f"{arities}: {ports}")
            return
        found = ", ".join(o.kind.value if o else "anything" for o in operands)
        expected = " or ".join(
            "(" + ", ".join(f"{p.name}: {p.kind.value}" for p in s.inputs) + ")"
            for s in primitive.signatures
        )
        self._problem("types", index, f"({found})", expected)

    def _problem(self, rule: str, index: int, found: str, expected: str) -> None:
        self.problems.append(Problem(rule, index, found, expected))

    def settle(self) -> None:
        """Decide the widths that are still free."""
        widths = {free: self._settle(free) for free in Free}
        for free, width in widths.items():
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
        """The width of a projected query or key: what it met, or else what qk_dim names."""
        width, projections = self._find(free), self.genome.projections
        if isinstance(width, Free):
            return projections.qk_dim
        if projections.qk_dim != "all" and projections.has_projection(free.value):
            self.problems.append(
                Problem(
                    "widths",
                    None,
                    f"qk_dim: {projections.qk_dim}, with {free} scored against a stream "
                    f"of width {_width(width)}",
                    "qk_dim: all",
                )
            )
        return width

    def _settled(self, found: Type) -> Type:
        width = found.width
        return found if width is None else found._replace(width=self._find(width))


def _reading(primitive: Primitive, operands: list[Type | None]) -> Signature | None:
    """The first signature that takes operands of these kinds; an unknown operand fits all."""
    for signature in primitive.signatures:
        ports = signature.inputs
        if len(ports) == len(operands):
            for port, operand in zip(ports, operands, strict=True):
                if operand is not None and operand.kind is not port.kind:
                    break
            else:
                return signature
    return None


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
    merged_is_model = (
        output.width == MODEL and (projections.merge == "sum" or output.heads == "one")
    ) or (projections.merge == "concat" and output.heads == "all" and output.width == "all")
    if merged_is_model:
        return None
    return Problem(
        "output",
        None,
        f"heads merged from {output} by {projections.merge}, without W_O",
        "the model width d, or has_wo: true",
    )


def _inputs(count: int) -> str:
    return "no inputs" if count == 0 else "1 input" if count == 1 else f"{count} inputs"


def _width(label: str) -> str:
    return {"all": "d/H", MODEL: "d"}.get(label, f"{label} d/H")
