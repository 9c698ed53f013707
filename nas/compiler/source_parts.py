"""Parts of the source of a class: sizes, head counts, signature, docstring and masks."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.compiler.inlining import LINE
from nas.compiler.masks import in_window
from nas.genome.types import MODEL

if TYPE_CHECKING:
    from nas.compiler.plan import Plan, Step
    from nas.compiler.source import Source

_PAST: Final = "torch.ones(n, n, dtype=torch.bool, device=x.device).tril()"


class Written(NamedTuple):
    """The source of a class, and the functions and classes of nas that it uses."""

    text: str
    roots: tuple[Any, ...]

    def imported(self) -> str:
        """Return the text of a module: imports from torch and nas, then the class."""
        lines = sorted({f"from {item.__module__} import {item.__name__}" for item in self.roots})
        head = ["import torch", "from torch import Tensor, nn"]
        return "\n".join(
            [*head, "from torch.nn import functional as F", "", *lines, "\n", self.text]
        )


SIGNATURE: Final = [
    "def forward(",
    "    self,",
    "    x: Tensor,",
    "    attn_mask: Tensor | None = None,",
    "    key_padding_mask: Tensor | None = None,",
    "    is_causal: bool = False,",
    ") -> Tensor:",
    '    """Masks: attn_mask True where allowed, key_padding_mask True at padding."""',
]

SIZE_LINES: Final = [
    "super().__init__()",
    "if dim < 1 or heads < 1 or dim % heads:",
    '    raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")',
    "self.dim, self.heads = dim, heads",
]


def head_names(plan: Plan) -> dict[str, str]:
    """Return the expression for each head count in a plan, by its label, such as "1/2"."""
    projections = plan.genome.projections
    names = {projections.kv_heads: "self.kv_heads", projections.q_heads: "self.q_heads"}
    names |= {"all": "self.heads", "one": "1"}
    labels = [stream.type.heads for stream in plan.streams] + [step.heads for step in plan.steps]
    return {label: names.get(label, f'head_count("{label}", self.heads)') for label in labels}


def width_text(label: str | None) -> str:
    """Return the expression for a width, by its label."""
    return {"all": "dim // heads", MODEL: "dim"}.get(label or "", "key_width")


def key_width_line(fraction: str) -> str:
    """Return the statement that sets the width of queries and keys, an even number."""
    top, bottom = fraction.split("/")
    share = "dim // heads" if top == "1" else f"{top} * (dim // heads)"
    return f"key_width = min(dim // heads, max(2, 2 * round({share} / {2 * int(bottom)})))"


def share_lines(name: str, label: str) -> list[str]:
    """Return statements that set a variable to a fraction of the heads, at least one head."""
    top, bottom = label.split("/")
    whole = "heads" if top == "1" else f"{top} * heads"
    words = f"{label} of {{heads}} heads is no whole number; expected heads that divide"
    return [
        f"if {whole} > {bottom} and {whole} % {bottom}:",
        f'    raise ValueError(f"{words}")',
        f"{name} = max(1, {whole} // {bottom})",
    ]


def product_text(count: str, width: str) -> str:
    """Return the expression for the width of several heads."""
    if count == "1":
        return width
    if (count, width) == ("heads", "dim // heads"):
        return "dim"
    return f"{count} * ({width})" if width == "dim // heads" else f"{count} * {width}"


def size_texts(step: Step, heads: str, bias: str) -> dict[str, str]:
    """Return expressions for the sizes that a step's module may take, by name of the argument."""
    texts = {"dim": "dim", "heads": heads, "bias": bias}
    if step.width is not None:
        texts["width"], texts["rank"] = width_text(step.width), width_text(step.rank)
    return texts | ({"filtered": "True"} if step.is_filtered else {})


def docstring(plan: Plan, formula: str) -> list[str]:
    """Return the lines of the class's docstring."""
    lines = [*textwrap.wrap(f'"""{formula}', LINE - 8), ""]
    window = plan.genome.visibility.window
    if window is not None:
        lines += [
            f"A token sees {window // 2} tokens on either side, with is_causal the last {window};",
            "attn_mask hides further tokens, and neither widens nor moves the window.",
            "",
        ]
    return [*lines, "(batch, tokens, dim) to (batch, tokens, dim).", '"""']


def mask_lines(source: Source) -> list[str]:
    """Return the lines that compute masks: up to three, for three kinds of readers.

    ========  ==========================================================================
    ``mask``  every reader, if the other two are absent
    ``kept``  kernels with an argument ``is_causal``: a mask without later tokens
    ``seen``  operations on tokens: a mask without the mechanism's window
    ========  ==========================================================================
    """
    plan = source.plan
    if not (source.pair_readers or source.token_readers or source.calls):
        return []
    lines = [
        "if key_padding_mask is not None:",
        "    kept = ~key_padding_mask[:, None, None]",
        "    mask = kept if mask is None else mask & kept",
    ]
    if plan.is_windowed:
        if source.seen_readers:
            lines += [] if plan.unsafe else _past_lines(source.seen_readers)
            lines.append("seen = mask")
        lines += ["kept = mask"] if source.flexible else []
        lines += window_lines(source, "near", "n", "place[:, None]", "is_causal")
        lines.append("mask = near if mask is None else mask & near")
    elif not plan.unsafe:
        lines += ["kept = mask"] if source.has_kept else []
        if source.pair_readers or source.token_readers or source.fused:
            lines += _past_lines(source.pair_readers)
    needs_length = any(_PAST in line or "place" in line for line in lines)
    return ["mask, n = attn_mask, x.shape[1]" if needs_length else "mask = attn_mask", *lines]


def window_lines(source: Source, name: str, count: str, queries: str, causal: str) -> list[str]:
    """Return lines that assign the mask of the mechanism's window over ``count`` keys."""
    visibility = source.plan.genome.visibility
    limits = f"{visibility.window}, {visibility.global_tokens}, {causal}"
    return [
        f"place = torch.arange({count}, device=x.device)",
        f"{name} = {source.use(in_window)}({queries}, place, {limits})",
    ]


def _past_lines(readers: list[Step]) -> list[str]:
    """Return lines that hide later tokens, for fused attention only if there is a mask."""
    if any(not step.primitive.reads_hidden_tokens for step in readers):
        return [
            "if is_causal:",
            f"    past = {_PAST}",
            "    mask = past if mask is None else mask & past",
        ]
    return ["if is_causal and mask is not None:", f"    mask = mask & {_PAST}"]
