"""Conversion: give a host the heads and projections that a genome names, from those it has.

    W of a group of heads = mean of theirs        queries, keys, values
    W_O of a group        = sum of theirs

Keys and values are pooled as for uptraining (Ainslie et al. 2023, section 2.1), queries alike:
where heads of a group are copies of each other, nothing changes. A projection that the genome lacks
is dropped; its stream is then the token, cut into heads (where that gives keys and values of two
numbers of heads, no cache of fixed size takes them). A genome's shares are of the host's query
heads; a host with fewer keys than it asks for keeps its own. Heads keep the host's width.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler import formula
from nas.compiler.plan import Plan, plan_as_written
from nas.genome import STREAMS, Genome
from nas.genome.primitives import Kind
from nas.genome.types import Type
from nas.surgery.core import HostSizes
from nas.surgery.hosted import hosted

OUT: Final = "o"
_NAMES: Final = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
)
_OUTPUTS: Final = ("o_proj", "out_proj", "proj", "c_proj", "dense", "o")
# Projections side by side: queries, then keys, then values. Others of these names interleave them.
_FUSED: Final = {"qkv": "Attention", "c_attn": "GPT2Attention"}
_CALLED: Final = {"q": "queries", "k": "keys", "v": "values", OUT: "output"}


class Fused(nn.Module):
    """Projections side by side in one result, one or more of them the token itself."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, dim) to (b, n, sum of the widths)."""
        return torch.cat([part(x) for part in self.children()], dim=-1)


def head_counts(genome: Genome, sizes: HostSizes) -> dict[str, int | None]:
    """How many heads each projection gets; None where it is dropped.

    Raises:
        GenomeError: the host cannot have these.
    """
    plan = plan_as_written(hosted(genome, sizes.is_rotated))
    projections = plan.genome.projections
    _check_widths(plan)
    found: dict[str, int | None] = {}
    read = {stream.name for stream in plan.streams}
    for stream in STREAMS:
        # What is not read stays: a cache of fixed size wants as many keys as values.
        if stream in read and not projections.has_projection(stream):
            found[stream] = None
            continue
        before = sizes.heads if stream == "q" else sizes.kv_heads
        label = projections.q_heads if stream == "q" else projections.kv_heads
        wanted = Type(Kind.TOKENS, label).head_count(sizes.heads)
        after = min(wanted, before)
        if before % after or wanted % after:
            raise GenomeError(
                f"{before} heads of {_CALLED[stream]} cannot become {label} of {sizes.heads}; "
                "expected groups of equal size, whose mean each new head is."
            )
        found[stream] = after
    found[OUT] = plan.output.head_count(sizes.heads) if projections.has_wo else None
    if found[OUT] is not None and sizes.heads % found[OUT]:
        raise GenomeError(
            f"{found[OUT]} heads cannot take the place of {sizes.heads}; expected a divisor."
        )
    if None in found.values() and sizes.heads * sizes.width != sizes.dim:
        raise GenomeError(
            f"its {sizes.heads} heads of width {sizes.width} are not the tokens' {sizes.dim} "
            "features; expected a mechanism with all projections."
        )
    return found


def described(genome: Genome, sizes: HostSizes) -> tuple[str, ...]:
    """What a conversion changes, a sentence each."""
    counts, seen, own = (
        head_counts(genome, sizes),
        genome.visibility,
        hosted(genome, sizes.is_rotated),
    )
    read = {ref for node in own.nodes for ref in node.inputs}
    found = [
        f"{_CALLED[s]} are not read; their projection has no effect"
        for s in STREAMS
        if s not in read
    ]
    for stream, count in counts.items():
        before = sizes.kv_heads if stream in ("k", "v") else sizes.heads
        what = _CALLED[stream]
        if count is None:
            found.append(
                "output: no projection"
                if stream == OUT
                else f"{what}: no projection, the tokens cut into heads"
            )
        elif count != before:
            how = "summed" if stream == OUT else "pooled by mean"
            found.append(f"{what}: {before} heads to {count}, {how}")
    if seen.window is not None:
        more = f", {seen.global_tokens} global tokens" if seen.global_tokens else ""
        found.append(f"a window of {seen.window} tokens{more}")
    if own != hosted(genome, is_rotated=False):
        found.append("the mechanism's RoPE of queries and keys is left out: the model rotates them")
    return (*found, f"attention is {formula(own)}")


def is_converted(genome: Genome, sizes: HostSizes) -> bool:
    """Whether the host's projections change."""
    before = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads, OUT: sizes.heads}
    return head_counts(genome, sizes) != before


def convert(module: nn.Module, genome: Genome, sizes: HostSizes) -> None:
    """Replace the module's projections where they are, of its device and precision.

    Raises:
        GenomeError: they are not laid out in a way that is known.
    """
    counts, layout = head_counts(genome, sizes), _Layout(module, sizes)
    parts: dict[str, nn.Module] = {}
    for stream, known in layout.read().items():
        count = counts[stream]
        if count is None:
            if known[0].shape[1] != sizes.dim:
                raise layout.refusal("reads tokens of another width", "all projections")
            parts[stream] = nn.Identity()
        else:
            parts[stream] = _linear(
                *(_groups(t, count, sizes).mean(1).flatten(0, 1) for t in known)
            )
    count = counts[OUT]
    if count != sizes.heads:
        name, (weight, *bias) = layout.output()
        out: nn.Module = nn.Identity()
        if count is not None:
            out = _linear(_groups(weight.T, count, sizes).sum(1).flatten(0, 1).T, *bias)
        setattr(module, name, out)
    layout.write(parts)


class _Layout:
    """How a module holds its projections: apart, side by side in one, or as torch packs them."""

    def __init__(self, module: nn.Module, sizes: HostSizes) -> None:
        self.host: Any = module
        self.dim = sizes.dim
        self.rows = [n * sizes.width for n in (sizes.heads, sizes.kv_heads, sizes.kv_heads)]
        own = {name for name, part in module.named_children() if isinstance(part, nn.Linear)}
        self.names = next((names for names in _NAMES if own.issuperset(names)), None)
        kind = type(module).__name__
        found = (name for name, own in _FUSED.items() if kind == own and hasattr(module, name))
        self.fused = next(found, None)

    def refusal(self, reason: str, expected: str) -> GenomeError:
        """The error for a module that cannot be converted so."""
        return GenomeError(
            f"{type(self.host).__name__} {reason}; expected a mechanism with {expected}."
        )

    def read(self) -> dict[str, tuple[Tensor, ...]]:
        """Weight (h w, dim), and bias where there is one, of each stream."""
        found: list[tuple[Tensor, ...]] = []
        if self.names is not None:
            found = [_tensors(getattr(self.host, name)) for name in self.names]
        elif isinstance(self.host, nn.MultiheadAttention):
            packed: Any = self.host.in_proj_weight
            apart = (getattr(self.host, f"{name}_weight") for name in _NAMES[0])
            weights = apart if packed is None else torch.split(packed.detach(), self.rows)
            shift: Any = self.host.in_proj_bias
            biases = [] if shift is None else [torch.split(shift.detach(), self.rows)]
            found = list(zip((w.detach() for w in weights), *biases, strict=True))
        elif self.fused is not None and not hasattr(self.host, "q_attn"):
            whole = _tensors(getattr(self.host, self.fused))
            if len(whole[0]) == sum(self.rows):
                found = list(zip(*(torch.split(t, self.rows) for t in whole), strict=True))
        if [len(weight) for weight, *_ in found] != self.rows:
            raise self.refusal(
                "holds its projections in another way than is known", "all heads and projections"
            )
        return dict(zip(STREAMS, found, strict=True))

    def output(self) -> tuple[str, tuple[Tensor, ...]]:
        """Name and tensors of the output's projection."""
        # What else reads the merged heads would need another width.
        beside = (getattr(self.host, name, None) for name in ("norm", "gate"))
        name = next((name for name in _OUTPUTS if hasattr(self.host, name)), None)
        if name is None or not all(isinstance(part, nn.Identity | None) for part in beside):
            raise self.refusal(
                "has no output projection that alone reads its heads",
                "all query heads and has_wo: true",
            )
        return name, _tensors(getattr(self.host, name))

    def write(self, parts: dict[str, nn.Module]) -> None:
        """Put other projections of the streams in their place."""
        widths = [
            part.out_features if isinstance(part, nn.Linear) else self.dim
            for part in parts.values()
        ]
        if self.fused == "c_attn":
            self.host.c_attn, self.host.split_size = Fused(parts), widths
            return
        for name, part in zip(self.names or _NAMES[0], parts.values(), strict=True):
            setattr(self.host, name, part)
        if self.fused is not None:
            delattr(self.host, self.fused)
        if isinstance(self.host, nn.MultiheadAttention):
            packed = ("in_proj_weight", "in_proj_bias")
            for name in (*packed, *(f"{one}_weight" for one in _NAMES[0])):
                setattr(self.host, name, None)
        if hasattr(self.host, "num_key_value_groups"):
            self.host.num_key_value_groups = max(widths[0] // widths[1], 1)


def _tensors(part: nn.Module) -> tuple[Tensor, ...]:
    """Weight (out, in) and bias, if any, of a linear map, as torch has it or as GPT-2's Conv1D."""
    known: Any = part
    weight = known.weight.detach()
    bias = () if known.bias is None else (known.bias.detach(),)
    return (weight.T if hasattr(part, "nx") else weight, *bias)


def _groups(rows: Tensor, count: int, sizes: HostSizes) -> Tensor:
    """Rows of heads (h w, ...) as (count, h / count, w, ...)."""
    return rows.reshape(count, -1, sizes.width, *rows.shape[1:])


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    with torch.device("meta"):
        made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight = nn.Parameter(weight.contiguous().clone())
    if bias is not None:
        made.bias = nn.Parameter(bias.clone())
    return made


def _check_widths(plan: Plan) -> None:
    """Refuse heads of other widths than the host's."""
    projections = plan.genome.projections
    wide = [s.name for s in plan.streams if s.type.width != "all"]
    if projections.qk_dim != "all":
        raise GenomeError(
            f"the mechanism has qk_dim: {projections.qk_dim}; expected all, the width of the "
            "model's heads, which its norms, rotation and cache have."
        )
    if wide or projections.merge != "concat" or plan.output.width != "all":
        raise GenomeError(
            "the mechanism's heads see or say whole tokens (raw: shared, merge: sum); expected "
            "heads of the model's width, concatenated."
        )
