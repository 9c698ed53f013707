"""Write a plan as the source of one Python class, ``Attention(dim, heads)``.

There are two forms of source, with the same calls in the same order. fast.py writes source for
training, which calls the fastest kernels. plain.py writes readable torch for exports. All names in
the source come from the registry or from a fixed list, so that a genome cannot inject code.
"""

from __future__ import annotations

import re
import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from nas.compiler.formula import formula_of
from nas.compiler.inlining import inlined
from nas.compiler.lowering import live
from nas.compiler.specialising import specialise
from nas.compiler.text import (
    LINE,
    call_line,
    heads_text,
    indented,
    key_width_text,
    share_lines,
    size_texts,
    times_text,
    width_text,
)
from nas.genome import head_count

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Plan, Step


@dataclass(frozen=True)
class Written:
    """The source of a class that computes a mechanism.

    Attributes:
        text: the source.
        roots: functions and classes of nas that the source uses.
        is_specialised: whether ``alone`` removes parameters, branches and definitions that the
            mechanism does not use.
    """

    text: str
    roots: tuple[Any, ...]
    is_specialised: bool

    def imported(self) -> str:
        """Return the text of a module: imports from torch and nas, then the class."""
        lines = sorted({f"from {item.__module__} import {item.__name__}" for item in self.roots})
        head = ["import torch", "from torch import Tensor, nn", "", *lines]
        return "\n".join(head) + f"\n\n\n{self.text}"

    def alone(self) -> list[str]:
        """Return definitions of a file that imports only torch: dependencies, then the class."""
        sources = (*inlined(self.roots), self.text)
        return list(specialise(sources) if self.is_specialised else sources)


class Source(ABC):
    """Base class of the two writers of source.

    Args:
        plan: the plan to write.
        calls: the kernel calls, each by index of the aggregation that it replaces.

    Attributes:
        split, repeat, merge: templates of the expressions that split a stream into heads, repeat
            heads, and merge heads.
        is_specialised: whether exported files omit options that the mechanism does not use.
        functions: the functions that the source may call, by name.
    """

    split: ClassVar[str]
    repeat: ClassVar[str]
    merge: ClassVar[str]
    is_specialised: ClassVar[bool] = False
    functions: ClassVar[dict[str, Any]] = {"head_count": head_count}

    def __init__(self, plan: Plan, calls: dict[int, Lowered]) -> None:
        self.plan, self.calls = plan, calls
        needed = live(plan, calls)
        hidden = {step.index for step in plan.steps} - needed
        self.streams = [stream for stream in plan.streams if stream.name in needed]
        self.steps = [step for step in plan.steps if step.index not in hidden]
        self.replaced = hidden | set(calls)
        self.heads = _head_names(plan)
        self.constants: dict[str, str] = {}
        self.methods: list[str] = []
        self.used: list[Any] = []
        # In a method for blocks of queries: the variables that are keys or values.
        self.keys: list[str] | None = None

    def write(self, dim: int, heads: int, qkv_bias: bool | None) -> Written:
        """Return the source of the class; ``dim`` and ``heads`` are its constructor's defaults.

        Args:
            qkv_bias: whether W_Q, W_K and W_V have a bias; None makes ``qkv_bias`` an argument of
                the constructor.
        """
        forward = self._forward()
        built = [
            s for s in self.plan.steps if s.index not in self.replaced or s.primitive.is_parametric
        ]
        constructor = self._constructor(built, "qkv_bias" if qkv_bias is None else str(qkv_bias))
        more = ", qkv_bias: bool = False" if qkv_bias is None else ""
        lines = [
            "class Attention(nn.Module):",
            *(f"    {line}".rstrip() for line in (*_docstring(self.plan), "")),
            f"    def __init__(self, dim: int = {dim}, heads: int = {heads}{more}) -> None:",
            *indented(constructor, 2),
            "",
            *indented(_SIGNATURE),
            *indented(forward, 2),
            *indented(self.methods),
        ]
        text = "\n".join(lines) + "\n"
        called = set(re.findall(r"(?<![.\w])\w+(?=\()", text))
        items = [item for name, item in self.functions.items() if name in called]
        used = (*items, *(self.module(step) for step in built), *self.used)
        return Written(text, tuple(dict.fromkeys(used)), self.is_specialised)

    # Methods that a form implements.

    @abstractmethod
    def call(self, call: Lowered) -> list[str]:
        """Return the lines that call a kernel in place of the steps that it replaces."""

    @abstractmethod
    def mask_lines(self) -> list[str]:
        """Return the lines that compute the variables ``mask`` and ``seen``, if steps read them.

        ``seen`` is the mask without the mechanism's window.
        """

    @abstractmethod
    def accepts_is_causal(self, call: Lowered) -> bool:
        """Whether the function of a kernel call has an argument ``is_causal``."""

    def step(self, step: Step) -> list[str]:
        """Return the lines of a primitive call that no kernel call replaces."""
        arguments = [*self.arguments(step), *(f"{k}={v}" for k, v in self.extras(step).items())]
        if self.keys is not None and step.primitive.is_positional:
            arguments.append("start=start")
        return [call_line(step.variable, f"self.{step.module}", arguments)]

    def pairs(self, steps: list[Step]) -> list[str]:
        """Return the lines of a stage's steps that work on pairs of query and key."""
        return [line for step in steps for line in self.lines(step)]

    def input(self) -> tuple[str, list[str]]:
        """Return the variable that the projections read, and the lines that compute it."""
        return "x", []

    def module(self, step: Step) -> type[nn.Module]:
        """Return the class of a step's module."""
        return step.primitive.module

    # Methods that forms call.

    def lines(self, step: Step) -> list[str]:
        """Return the lines of a primitive call, or of the kernel call that replaces it."""
        return self.call(self.calls[step.index]) if step.index in self.calls else self.step(step)

    def names(self, step: Step) -> list[str]:
        """Return the variables of a step's operands.

        In a method for one block of queries, the variable of queries gets the suffix ``_rows`` if
        the same stream is also read as keys.
        """
        rows = self.keys or ()
        return [
            f"{o.variable}_rows" if o.port.is_query and o.variable in rows else o.variable
            for o in step.operands
        ]

    def arguments(self, step: Step) -> list[str]:
        """Return the expressions for a step's operands, with as many heads as the step."""
        pairs = zip(self.names(step), step.operands, strict=True)
        return [self.repeated(name, operand, step) for name, operand in pairs]

    def repeated(self, name: str, operand: Operand, step: Step) -> str:
        """Return the expression for an operand, with repeated heads if the step has more heads."""
        if not operand.is_repeated:
            return name
        return self.repeat.format(x=name, heads=self.heads[step.heads])

    def extras(self, step: Step) -> dict[str, str]:
        """Return expressions for ``x`` and ``mask`` by name, if the step's module takes them."""
        texts = {
            "x": "x",
            "mask": "mask" if step.is_paired or not self.plan.is_windowed else "seen",
        }
        return {name: texts[name] for name in step.primitive.extras}

    def scale(self, score: Step) -> str:
        """Return the expression ``self.scale_<index>`` for the factor of a step's scores.

        The constructor of the class will assign this attribute.
        """
        name = f"scale_{score.index}"
        self.constants[name] = f"({width_text(score.rank)}) ** -0.5"
        return f"self.{name}"

    def gets_is_causal(self, call: Lowered) -> bool:
        """Whether a kernel call gets ``is_causal`` as an argument instead of a causal mask."""
        return self.accepts_is_causal(call) and not self.plan.is_windowed and not self.plan.unsafe

    def mask_readers(self) -> list[Step]:
        """Return the steps that read a mask, including steps that a kernel call replaces."""
        return [s for s in self.steps if s.index in self.calls or "mask" in s.primitive.extras]

    def all_get_is_causal(self) -> bool:
        """Whether there are steps that read a mask, and all of them get ``is_causal`` instead."""
        calls = [self.calls.get(step.index) for step in self.mask_readers()]
        return bool(calls) and all(call is not None and self.gets_is_causal(call) for call in calls)

    # The body of the class.

    def _forward(self) -> list[str]:
        plan, lines = self.plan, self.mask_lines()
        if plan.unsafe:
            words = f"{', '.join(plan.unsafe)} sees later tokens: not causal"
            lines = ["if is_causal:", f'    raise ValueError("{words}")', *lines]
        projected, input_lines = self.input()
        lines += input_lines
        for stream in self.streams:
            source = f"self.w{stream.name}({projected})" if stream.is_projected else "x"
            cut = self.split.format(x=source, heads=self.heads[stream.type.heads])
            lines.append(f"{stream.name} = {cut}")
        for stage in sorted({step.stage for step in self.steps}):
            stage_steps = [step for step in self.steps if step.stage == stage]
            for step in stage_steps:
                lines += [] if step.is_paired else self.lines(step)
            lines += self.pairs([step for step in stage_steps if step.is_paired])
        out, projections = plan.steps[-1].variable, plan.genome.projections
        is_sum = projections.merge == "sum"
        merged = f"{out}.sum(dim=1)" if is_sum else self.merge.format(x=out)
        return [*lines, f"return self.wo({merged})" if projections.has_wo else f"return {merged}"]

    def _constructor(self, built: list[Step], bias: str) -> list[str]:
        plan = self.plan
        names = {v: k for k, v in self.heads.items() if k != "all" and v[:5] == "self."}
        shares = [line for name, label in names.items() for line in share_lines(name, label)]
        widths = {width_text(stream.type.width) for stream in plan.streams}
        qk_dim = plan.genome.projections.qk_dim
        if "key_width" in widths:
            shares.append(f"key_width = {key_width_text(qk_dim)}")
        lines = [
            "super().__init__()",
            "if dim < 1 or heads < 1 or dim % heads:",
            '    raise ValueError(f"dim {dim} and heads {heads}: heads must divide dim")',
            "self.dim, self.heads = dim, heads",
            *shares,
            *(f"self.{name} = {text}" for name, text in self.constants.items()),
        ]
        for stream in plan.streams:
            if stream.is_projected:
                width = times_text(self._count(stream.type.heads), width_text(stream.type.width))
                lines.append(f"self.w{stream.name} = nn.Linear(dim, {width}, bias={bias})")
        for step in built:
            defaults, name = step.primitive.defaults(), self.module(step).__name__
            sizes = step.bind(size_texts(step, self._count(step.heads), bias))
            arguments = [f"{name}={text}" for name, text in sizes.items()]
            arguments += [f"{k}={v!r}" for k, v in step.params.items() if v != defaults[k]]
            lines.append(call_line(f"self.{step.module}", name, arguments))
        if plan.genome.projections.has_wo:
            merged = width_text(plan.output.width)
            if plan.genome.projections.merge != "sum":
                merged = times_text(self._count(plan.output.heads), merged)
            lines.append(f"self.wo = nn.Linear({merged}, dim)")
        return lines

    def _count(self, label: str) -> str:
        return "heads" if label == "all" else self.heads[label]


def _head_names(plan: Plan) -> dict[str, str]:
    """Return the expression for each head count in a plan, by its label, such as "1/2"."""
    projections = plan.genome.projections
    names = {projections.kv_heads: "self.kv_heads", projections.q_heads: "self.q_heads"}
    names |= {"all": "self.heads", "one": "1"}
    labels = [stream.type.heads for stream in plan.streams] + [step.heads for step in plan.steps]
    return {label: names.get(label, heads_text(label, "self.heads")) for label in labels}


_SIGNATURE = [
    "def forward(",
    "    self,",
    "    x: Tensor,",
    "    attn_mask: Tensor | None = None,",
    "    key_padding_mask: Tensor | None = None,",
    "    is_causal: bool = False,",
    ") -> Tensor:",
    '    """Masks: attn_mask True where allowed, key_padding_mask True at padding."""',
]


def _docstring(plan: Plan) -> list[str]:
    lines = [*textwrap.wrap(f'"""{formula_of(plan)}', LINE - 8), ""]
    window = plan.genome.visibility.window
    if window is not None:
        lines += [
            f"A token sees {window // 2} tokens on either side, with is_causal the last {window};",
            "attn_mask hides further tokens, and neither widens nor moves the window.",
            "",
        ]
    return [*lines, "(batch, tokens, dim) to (batch, tokens, dim).", '"""']
