"""Conversion: change the projections of an existing model's attention to the heads of a genome.

    W of a group of heads = mean over the group       queries, keys, values
    W_O of a group        = sum over the group

The mean is the rule by which Ainslie et al. (2023, section 2.1) pool keys and values. If the heads
of a group are equal, outputs do not change. If the genome has no projection of queries, keys or
values, the model's projection is dropped, and each head reads its slice of the token instead. The
genome's head labels, such as ``1/2``, are fractions of the number of query heads. The number of
heads never increases. The head width does not change.
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
from nas.genome.types import MODEL, Type
from nas.surgery.core import HostSizes
from nas.surgery.host_form import host_form

OUT: Final = "o"
_SEPARATE: Final = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q", "k", "v"))
_OUTPUTS: Final = ("o_proj", "out_proj", "proj", "c_proj", "dense", "o")
# Classes whose fused projection holds queries, then keys, then values. Other classes with a fused
# projection of this name interleave them by head.
_FUSED: Final = {"qkv": "Attention", "c_attn": "GPT2Attention"}
_WORDS: Final = {"q": "queries", "k": "keys", "v": "values", OUT: "output"}


class Fused(nn.ModuleDict):
    """Projections with concatenated outputs, (b, n, dim) to (b, n, sum of the widths)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply all projections to x."""
        return torch.cat([part(x) for part in self.values()], dim=-1)


class NoTensor:
    """A stand-in for a weight that a conversion removed from nn.MultiheadAttention.

    nn.TransformerEncoder reads the weights of its first layer in eval mode, and does not use its
    fast path if a weight has a ``__torch_function__``.
    """

    requires_grad = False

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented


class NoProjection(nn.Identity):
    """The identity in place of an output projection."""

    weight, bias = NoTensor(), NoTensor()


def head_counts(genome: Genome, sizes: HostSizes) -> dict[str, int | None]:
    """Return the number of heads of each projection after a conversion; None for no projection.

    Raises:
        GenomeError: the model's heads cannot be pooled to these numbers.
    """
    plan = plan_as_written(host_form(genome, sizes.is_rotated))
    projections = plan.genome.projections
    _check_widths(plan, sizes)
    counts: dict[str, int | None] = {}
    read = {stream.name for stream in plan.streams}
    for stream in STREAMS:
        # A stream that is not read stays: a cache of fixed size needs as many keys as values.
        if stream in read and not projections.has_projection(stream):
            counts[stream] = None
            continue
        before = sizes.heads if stream == "q" else sizes.kv_heads
        label = projections.q_heads if stream == "q" else projections.kv_heads
        named = Type(Kind.TOKENS, label).head_count(sizes.heads)
        after = min(named, before)
        if before % after or named % after:
            raise GenomeError(
                f"{before} heads of {_WORDS[stream]} cannot become {label} of {sizes.heads}; "
                "expected groups of equal size, whose mean each new head is."
            )
        counts[stream] = after
    counts[OUT] = plan.output.head_count(sizes.heads) if projections.has_wo else None
    if counts[OUT] is not None and sizes.heads % counts[OUT]:
        raise GenomeError(
            f"{counts[OUT]} heads cannot take the place of {sizes.heads}; expected a divisor."
        )
    if None in counts.values() and sizes.heads * sizes.width != sizes.dim:
        raise GenomeError(
            f"its {sizes.heads} heads of width {sizes.width} are not the tokens' {sizes.dim} "
            "features; expected a mechanism with all projections."
        )
    return counts


def stream_widths(genome: Genome, sizes: HostSizes) -> dict[str, int]:
    """Return the number of features of one head of queries, keys and values."""
    plan = plan_as_written(host_form(genome, sizes.is_rotated))
    labels = {stream.name: stream.type.width for stream in plan.streams}
    return {stream: sizes.width_of(labels.get(stream)) for stream in STREAMS}


def description(genome: Genome, sizes: HostSizes) -> tuple[str, ...]:
    """Return sentences on what replacing the attention changes: heads, window, RoPE and formula."""
    form, visibility = host_form(genome, sizes.is_rotated), genome.visibility
    read = {ref for node in form.nodes for ref in node.inputs}
    lines = [
        f"{_WORDS[stream]} are not read; their projection has no effect"
        for stream in STREAMS
        if stream not in read
    ]
    for stream, count in head_counts(genome, sizes).items():
        before, word = _host_counts(sizes)[stream], _WORDS[stream]
        if count is None:
            rest = "" if stream == OUT else ", the tokens cut into heads"
            lines.append(f"{word}: no projection{rest}")
        elif count != before:
            how = "summed" if stream == OUT else "pooled by mean"
            lines.append(f"{word}: {before} heads to {count}, {how}")
    for stream, width in stream_widths(genome, sizes).items():
        if width != sizes.width:
            lines.append(f"{_WORDS[stream]}: the first {width} of a head's {sizes.width} features")
    if visibility.window is not None:
        count = visibility.global_tokens
        lines.append(
            f"a window of {visibility.window} tokens{f', {count} global tokens' if count else ''}"
        )
    if form != host_form(genome, is_rotated=False):
        lines.append("the mechanism's RoPE of queries and keys is left out: the model rotates them")
    return (*lines, f"attention is {formula(form)}")


def is_converted(genome: Genome, sizes: HostSizes) -> bool:
    """Return whether the genome needs other projections than the model has."""
    is_narrow = any(width != sizes.width for width in stream_widths(genome, sizes).values())
    return is_narrow or head_counts(genome, sizes) != _host_counts(sizes)


def convert(module: nn.Module, genome: Genome, sizes: HostSizes) -> None:
    """Replace a module's projections in place by those that the genome needs.

    Raises:
        GenomeError: the module holds its projections in an unknown layout.
    """
    counts, layout = head_counts(genome, sizes), _Layout(module, sizes)
    widths = stream_widths(genome, sizes)
    parts: dict[str, nn.Module] = {}
    for stream, tensors in layout.read().items():
        count = counts[stream]
        if count is None:
            if tensors[0].shape[1] != sizes.dim:
                raise layout.refusal("reads tokens of another width", "all projections")
            parts[stream] = nn.Identity()
        else:
            width = widths[stream]
            pooled = (_groups(t, count, sizes).mean(1)[:, :width].flatten(0, 1) for t in tensors)
            parts[stream] = _linear(*pooled)
    count = counts[OUT]
    if count != sizes.heads:
        name, (weight, *bias) = layout.output()
        out: nn.Module = NoProjection()
        if count is not None:
            out = _linear(_groups(weight.T, count, sizes).sum(1).flatten(0, 1).T, *bias)
        setattr(module, name, out)
    layout.write(parts)


class _Layout:
    """Access to a module's projections, which are separate, fused, or packed as in torch.

    Separate projections are three modules. A fused projection is one module for queries, keys and
    values. nn.MultiheadAttention packs the weights into one parameter.
    """

    def __init__(self, module: nn.Module, sizes: HostSizes) -> None:
        self.host: Any = module
        self.dim = sizes.dim
        self.rows = [n * sizes.width for n in (sizes.heads, sizes.kv_heads, sizes.kv_heads)]
        linear = {name for name, part in module.named_children() if isinstance(part, nn.Linear)}
        self.names = next((names for names in _SEPARATE if linear.issuperset(names)), None)
        kind = type(module).__name__
        fused = (name for name, of in _FUSED.items() if kind == of and hasattr(module, name))
        self.fused = next(fused, None)

    def refusal(self, reason: str, expected: str) -> GenomeError:
        return GenomeError(
            f"{type(self.host).__name__} {reason}; expected a mechanism with {expected}."
        )

    def read(self) -> dict[str, tuple[Tensor, ...]]:
        """Return the weight, and the bias if any, of the projections of queries, keys and values.

        The keys are ``q``, ``k`` and ``v``. A weight has the shape (heads times head width, dim).
        """
        tensors: list[tuple[Tensor, ...]] = []
        if self.names is not None:
            tensors = [_tensors(getattr(self.host, name)) for name in self.names]
        elif isinstance(self.host, nn.MultiheadAttention):
            packed: Any = self.host.in_proj_weight
            separate = (getattr(self.host, f"{name}_weight") for name in _SEPARATE[0])
            weights = separate if packed is None else torch.split(packed.detach(), self.rows)
            bias: Any = self.host.in_proj_bias
            biases = [] if bias is None else [torch.split(bias.detach(), self.rows)]
            tensors = list(zip((w.detach() for w in weights), *biases, strict=True))
        elif self.fused is not None and not hasattr(self.host, "q_attn"):
            whole = _tensors(getattr(self.host, self.fused))
            if len(whole[0]) == sum(self.rows):
                tensors = list(zip(*(torch.split(t, self.rows) for t in whole), strict=True))
        if [len(weight) for weight, *_ in tensors] != self.rows:
            raise self.refusal(
                "holds its projections in an unknown layout", "all heads and projections"
            )
        return dict(zip(STREAMS, tensors, strict=True))

    def output(self) -> tuple[str, tuple[Tensor, ...]]:
        """Return the name of the output projection, its weight and its bias if any."""
        # A norm or gate of the merged heads would need another width.
        readers = (getattr(self.host, name, None) for name in ("norm", "gate"))
        name = next((name for name in _OUTPUTS if hasattr(self.host, name)), None)
        if name is None or not all(isinstance(part, nn.Identity | None) for part in readers):
            raise self.refusal(
                "has no output projection that alone reads its heads",
                "all query heads and has_wo: true",
            )
        return name, _tensors(getattr(self.host, name))

    def write(self, parts: dict[str, nn.Module]) -> None:
        """Replace the projections of queries, keys and values by ``parts``."""
        widths = [getattr(part, "out_features", self.dim) for part in parts.values()]
        if self.fused == "c_attn":
            self.host.c_attn, self.host.split_size = Fused(parts), widths
            return
        for name, part in zip(self.names or _SEPARATE[0], parts.values(), strict=True):
            setattr(self.host, name, part)
        if self.fused is not None:
            delattr(self.host, self.fused)
        if isinstance(self.host, nn.MultiheadAttention):
            for name in ("in_proj_weight", "in_proj_bias"):
                delattr(self.host, name)
                setattr(self.host, name, NoTensor())
            for name in _SEPARATE[0]:
                setattr(self.host, f"{name}_weight", None)
        if hasattr(self.host, "num_key_value_groups"):
            self.host.num_key_value_groups = max(widths[0] // widths[1], 1)


def _host_counts(sizes: HostSizes) -> dict[str, int]:
    return {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads, OUT: sizes.heads}


def _tensors(part: nn.Module) -> tuple[Tensor, ...]:
    """Return weight (out, in) and bias, if any, of nn.Linear or of GPT-2's Conv1D."""
    linear: Any = part
    weight = linear.weight.detach()
    bias = () if linear.bias is None else (linear.bias.detach(),)
    return (weight.T if hasattr(part, "nx") else weight, *bias)


def _groups(rows: Tensor, count: int, sizes: HostSizes) -> Tensor:
    """Split rows of heads (heads times width, ...) into ``count`` groups of consecutive heads.

    The result has the shape (count, heads per group, width, ...).
    """
    return rows.reshape(count, -1, sizes.width, *rows.shape[1:])


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    with torch.device("meta"):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight.contiguous().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.clone())
    return linear


def _check_widths(plan: Plan, sizes: HostSizes) -> None:
    """Raise GenomeError if a head of the mechanism has a width that the model cannot hold."""
    projections = plan.genome.projections
    if projections.qk_dim != "all" and not sizes.may_narrow:
        raise GenomeError(
            f"the mechanism has qk_dim: {projections.qk_dim}; expected all, the width of the "
            "model's heads, which its norms, rotation and cache have. `nas.build_attention` and "
            "`nas.export` make layers of any width."
        )
    widths = {stream.type.width for stream in plan.streams} | {plan.output.width}
    if MODEL in widths or plan.output.width != "all" or projections.merge != "concat":
        raise GenomeError(
            "the mechanism's heads read or write whole tokens (raw: shared, merge: sum); expected "
            "heads of the model's width, concatenated."
        )
