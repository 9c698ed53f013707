"""Write a plan as the source of one Python class, ``Attention(dim, heads)``, in readable torch.

The method ``forward`` contains one or more lines for each step (primitive call) of the plan:

    tokens_0 = self.linear_0(v)
    tokens_3 = softmax_attention(q, k, tokens_0, mask)

All names in the source come from the registry or a fixed list, so that no genome injects code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.formula import formula_of
from nas.compiler.inlining import PROVIDED, call_line, globals_of, indented, renamed, returned
from nas.compiler.kernels import fast_class, traceable_class
from nas.compiler.kernels.attention import by_last, with_ones
from nas.compiler.kernels.flexible import CHANGES, flexible_attention, is_flexible, log_sigmoid
from nas.compiler.kernels.softmax import (
    biased_attention,
    differential_attention,
    softmax_attention,
    with_features,
)
from nas.compiler.kernels.twins import has_twin, twin_stick_breaking, twin_sums
from nas.compiler.lowering import distributed, flexible_calls, live, lower, twin_calls
from nas.compiler.source_parts import (
    SIGNATURE,
    SIZE_LINES,
    Written,
    docstring,
    head_names,
    key_width_line,
    mask_lines,
    product_text,
    share_lines,
    size_texts,
    width_text,
)
from nas.genome import head_count

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Plan, Step
    from nas.genome import Ref

Decode = Callable[["Source"], tuple[list[str], set[int]]]
_FUSED: Final = (softmax_attention, differential_attention)  # called like torch's attention


class Source:
    """The source of a class ``Attention`` that computes the mechanism of a plan.

    Source ``is_fast`` if it uses all faster classes of ``nas.compiler.kernels``, as in training,
    and not only those of a few torch operations. With ``fuse`` one kernel call may replace several
    primitive calls.
    """

    def __init__(self, plan: Plan, is_fast: bool = True, fuse: bool = True) -> None:
        self.formula = formula_of(plan)
        plan = distributed(plan) if fuse else plan
        calls = lower(plan) if fuse else {}
        if not is_fast:  # step by step, changed scores and pairs of heads are shorter
            calls = {i: call for i, call in calls.items() if not (call.mix or call.changes)}
        self.flexible = flexible_calls(plan) if fuse and is_fast else {}
        self.twins = twin_calls(plan) if fuse and is_fast else {}
        self.plan, self.calls, self.is_fast = plan, calls, is_fast
        self.module_class = fast_class if is_fast else traceable_class
        self.needed = live(plan, calls)
        self.steps = [step for step in plan.steps if step.index in self.needed]
        self.heads = head_names(plan)
        self.scales: dict[str, str] = {}
        self.used: dict[Any, None] = {}  # functions and classes of nas, in order of their use
        self.expressions: set[int] = set()  # steps that are written without a module
        # Readers of masks, by the mask that they need under ``is_causal``.
        readers = [s for s in self.steps if s.index not in calls and "mask" in s.primitive.extras]
        self.pair_readers = [s for s in readers if not s.primitive.reads_hidden_tokens]
        self.token_readers = [s for s in readers if s.primitive.reads_hidden_tokens]
        self.seen_readers = [s for s in readers if plan.is_windowed and not s.is_paired]
        self.fused = [c for c in calls.values() if c.function in _FUSED]
        has_others = bool(readers or self.fused) and len(self.fused) < len(calls)
        self.has_kept = has_others or bool(self.flexible or self.twins)

    def write(
        self, dim: int, heads: int, qkv_bias: bool = False, decode: Decode | None = None
    ) -> Written:
        """Return the text of the class, and what it uses.

        ``dim`` and ``heads`` are defaults of the constructor. ``decode`` returns the lines of a
        further method, and the steps whose modules it calls.
        """
        forward = self._forward()
        further, called = decode(self) if decode else ([], set())
        needed = ({s.index for s in self.steps} - self.calls.keys() | called) - self.expressions
        # Weights that no result depends on are kept, so that initial weights are drawn alike.
        built = [s for s in self.plan.steps if s.index in needed or s.primitive.is_parametric]
        lines = [
            "class Attention(nn.Module):",
            *(f"    {line}".rstrip() for line in (*docstring(self.plan, self.formula), "")),
            f"    def __init__(self, dim: int = {dim}, heads: int = {heads}) -> None:",
            *indented(self._constructor(built, str(qkv_bias)), 2),
            "",
            *indented(SIGNATURE),
            *indented(forward, 2),
            *further,
        ]
        return Written("\n".join(lines) + "\n", tuple(self.used))

    def use(self, item: Any) -> str:
        """Record that the source uses a function or class of nas, and return its name."""
        self.used[item] = None
        return str(item.__name__)

    def _heads(self, label: str) -> str:
        if self.heads[label].startswith("head_count"):
            self.use(head_count)
        return self.heads[label]

    def _forward(self) -> list[str]:
        plan, lines = self.plan, []
        if plan.unsafe:
            words = f"{', '.join(plan.unsafe)} sees later tokens: not causal"
            lines = ["if is_causal:", f'    raise ValueError("{words}")']
        lines += mask_lines(self)
        lines += self.stream_lines(self.needed)
        choices = [*self.flexible.values(), *self.twins.values()]
        chains = {s.index for call in choices for s in call.steps}
        for step in self.steps:
            if step.index in self.flexible:
                lines += self._flexible(self.flexible[step.index])
            elif step.index in self.twins:
                lines += self._twin(self.twins[step.index])
            elif step.index not in chains:
                lines += self._step(step)
        return [*lines, self.return_line()]

    def stream_lines(self, needed: Collection[Ref]) -> list[str]:
        """Return the assignments of those of the queries, keys and values that are needed."""
        lines = []
        for stream in (stream for stream in self.plan.streams if stream.name in needed):
            source = f"self.w{stream.name}(x)" if stream.is_projected else "x"
            heads = self._heads(stream.type.heads)
            lines.append(f"{stream.name} = {source}.unflatten(-1, ({heads}, -1)).transpose(1, 2)")
        return lines

    def return_line(self) -> str:
        """Return the statement that merges heads and returns the output."""
        out, projections = self.plan.steps[-1].variable, self.plan.genome.projections
        merged = f"{out}.sum(dim=1)"
        if projections.merge != "sum":
            merged = f"{out}.transpose(1, 2).flatten(2)"
        return f"return self.wo({merged})" if projections.has_wo else f"return {merged}"

    @property
    def _is_causal(self) -> list[str]:
        """The argument ``is_causal`` of kernel calls, unless their mask hides later tokens."""
        return [] if self.plan.is_windowed or self.plan.unsafe else ["is_causal=is_causal"]

    def _step(self, step: Step) -> list[str]:
        if step.index in self.calls:
            return self._call(self.calls[step.index])
        is_seen = self.plan.is_windowed and not step.is_paired
        return [self.step_line(step, {"x": "x", "mask": "seen" if is_seen else "mask"})]

    def step_line(self, step: Step, texts: Mapping[str, str]) -> str:
        """Return the assignment of a step's result, given expressions for x, mask and start."""
        names = (*step.primitive.extras, *["start"] * step.primitive.is_positional)
        extras = {name: texts[name] for name in names if name in texts}
        value = self._expression(step, extras)
        if value is not None:
            return f"{step.variable} = {value}"
        arguments = [*self.arguments(step), *(f"{k}={v}" for k, v in extras.items() if v != "None")]
        return call_line(step.variable, f"self.{step.module}", arguments)

    def _twin(self, call: Lowered) -> list[str]:
        """Return the lines of a call of fla, and of what runs in other cases."""
        assert call.score is not None, "a mean has no scores"
        operands = [self.with_heads(operand, call.sum.heads) for operand, _ in call.operands]
        query, key, values, *gates = operands
        more = [f"gates={each}" for each in gates] + ["divide=True"] * call.is_divided
        if call.rule:
            strength = f"self.{call.rule.module}.strength(x)"
            more.append(f"strength=torch.sigmoid({strength}).mT[..., None]")
        values = f"{self.use(with_ones)}({values})" if call.is_ratio else values
        arguments = [query, key, values, self.scale(call.score), *more]
        function = self.use(twin_sums if call.is_linear else twin_stick_breaking)
        if call.is_ratio:
            arguments = [call_line("", function, arguments).removeprefix(" = ")]
            function = self.use(by_last)
        line = call_line(call.sum.variable, function, arguments)
        return self._choice(f"is_causal and kept is None and {self.use(has_twin)}", line, call)

    def _choice(self, condition: str, line: str, call: Lowered) -> list[str]:
        """Return the lines of a choice between a call's line and the steps that it replaces."""
        query, _, values = (operand.variable for operand, _ in call.operands[:3])
        indices = {step.index for step in call.steps}
        rest = [line for s in self.steps if s.index in indices for line in self._step(s)]
        first = f"if {condition}({query}, {values}):"
        return [first, f"    {line}", "else:", *(f"    {line}" for line in rest)]

    def _flexible(self, call: Lowered) -> list[str]:
        """Return the lines of a call of FlexAttention, and of what runs in other cases."""
        assert call.score is not None, "a mean has no scores"
        query, key, values, *others = [self.with_heads(*each) for each in call.operands]
        mask = "mask" if self.plan.unsafe and not self.plan.is_windowed else "kept"
        arguments = [query, key, values, mask, self.scale(call.score), "is_causal"]
        changes = [self._change(call, step, others) for step in call.changes]
        if call.normaliser.primitive.name == "sigmoid":
            changes.append(f"{self.use(log_sigmoid)}()")
        arguments += [f"[{', '.join(changes)}]", *self._sink(call)]
        if self.plan.is_windowed:
            visibility = self.plan.genome.visibility
            arguments.append(f"window=({visibility.window}, {visibility.global_tokens})")
        arguments += ["is_divided=False"] * (call.normaliser.primitive.name == "sigmoid")
        line = call_line(call.sum.variable, self.use(flexible_attention), arguments)
        return self._choice(self.use(is_flexible), line, call)

    def _change(self, call: Lowered, step: Step, operands: list[str]) -> str:
        """Return the expression of a score's change, which takes its operand from the list."""
        function, text = CHANGES[step.primitive.name]
        operand = operands.pop(0) if len(step.operands) > 1 else ""
        names = {call.normaliser.primitive.name, *(s.primitive.name for s in call.changes)}
        # Only softmax ignores what all keys of a query share.
        causal = "is_causal" if "softmax" in names and "softcap" not in names else "False"
        text = text.format(module=f"self.{step.module}", operand=operand, causal=causal)
        return f"{self.use(function)}({text})"

    def _call(self, call: Lowered) -> list[str]:
        """Return the lines that call a kernel in place of the steps that it replaces."""
        causal, name = self._is_causal, call.sum.variable
        if call.function in _FUSED:
            return [self.fused_line(call, is_causal=bool(causal) and not self.pair_readers)]
        is_biased = call.function is biased_attention and not self.is_fast
        function = self.use(with_features if is_biased else call.function)
        mask = "kept" if causal and self.has_kept else "mask"
        operands = [self.with_heads(operand, label) for operand, label in call.operands]
        if call.score is None:
            line = call_line(name, function, [*operands, mask, *causal])
            mean = call.sum.operands[1]
            again = f"{name} = {self.with_heads(mean, call.sum.heads, name)}"
            return [line, again] if mean.is_repeated else [line]
        query, key, values, *more = operands
        target, lines = name, []
        if call.is_ratio:
            target, ones = f"sums_{call.sum.index}", f"ones_{call.sum.index}"
            lines, values = [f"{ones} = {self.use(with_ones)}({values})"], ones
        arguments = [query, key, values, mask, self.scale(call.score), *causal]
        arguments += self._changes(call, more)
        arguments += ["divide=False"] if call.is_linear and not call.is_divided else []
        arguments += ["is_square=True"] * (call.is_quadratic and call.is_square)
        lines.append(call_line(target, function, arguments))
        return [*lines, f"{name} = {self.use(by_last)}({target})"] if call.is_ratio else lines

    def _changes(self, call: Lowered, operands: list[str]) -> list[str]:
        """Return arguments for gates, biases of keys and a sink."""
        gates, biases = [] if call.changes else operands, []
        for change, operand in zip(call.changes, operands, strict=False):
            if change.primitive.name == "decay":
                gates.append(operand)
            else:
                biases.append(f"self.{change.module}.bias({operand})")
        sums = {"gates": gates, "bias": biases}
        arguments = [f"{name}={' + '.join(terms)}" for name, terms in sums.items() if terms]
        return arguments + self._sink(call)

    def _sink(self, call: Lowered) -> list[str]:
        if call.normaliser.primitive.name == "softmax_sink":
            return [f"sink=self.{call.normaliser.module}.sink"]
        return [f"sink=x.new_zeros({self._heads(call.sum.heads)})"] if call.has_sink else []

    def fused_line(self, call: Lowered, is_causal: bool) -> str:
        """Return the call of fused attention, which hides later tokens if ``is_causal``."""
        assert call.score is not None, "fused attention has a score"
        # Torch repeats keys and values.
        repeated = [operand.is_repeated for operand, _ in call.operands]
        is_grouped = not call.mix and repeated == [False, True, True]
        arguments = [
            operand.variable if is_grouped else self.with_heads(operand, label)
            for operand, label in call.operands
        ]
        arguments.append("mask")
        if is_causal:
            arguments.append("is_causal=is_causal and mask is None")
        if call.score.width != call.score.rank:  # torch's default scale uses the width
            arguments.append(f"scale={self.scale(call.score)}")
        arguments += ["enable_gqa=True"] if is_grouped else []
        arguments += [f"factor=self.{call.mix.module}.factor"] if call.mix else []
        # A readable file calls torch's function.
        is_torchs = not self.is_fast and call.mix is None
        name = "scaled_dot_product_attention" if is_torchs else self.use(call.function)
        return call_line(call.sum.variable, name, arguments)

    def _expression(self, step: Step, extras: Mapping[str, str]) -> str | None:
        """Return the expression of a step that is one expression of its operands, else None."""
        module: Any = self.module_class(step.primitive.module)
        value = None if step.primitive.is_positional else returned(module)
        if value is None:
            return None
        names = list(inspect.signature(module.forward).parameters)[1:]
        texts = dict(zip(names, self.arguments(step), strict=False)) | dict(extras)
        if set(names) - texts.keys() or any(operand.is_repeated for operand in step.operands):
            return None
        text = renamed(value, texts)
        scope = vars(sys.modules[module.__module__])
        used = [scope[name] for name in globals_of(text) if name in scope.keys() - PROVIDED]
        if not all(inspect.isfunction(item) or inspect.isclass(item) for item in used):
            return None  # a constant belongs to the module of the primitive
        for item in used:
            self.use(item)
        self.expressions.add(step.index)
        return text

    def arguments(self, step: Step) -> list[str]:
        """Return the expressions for a step's operands, with as many heads as the result."""
        return [self.with_heads(operand, step.heads) for operand in step.operands]

    def with_heads(self, operand: Operand, label: str, name: str = "") -> str:
        """Return the expression for an operand, with repeated heads if it has fewer."""
        name = name or operand.variable
        if operand.type.heads == label:
            return name
        return f"{name}.repeat_interleave({self._heads(label)} // {name}.shape[1], dim=1)"

    def scale(self, score: Step) -> str:
        """Return an attribute for the factor of a step's scores, which the constructor assigns."""
        name = f"scale_{score.index}"
        self.scales[name] = f"({width_text(score.rank)}) ** -0.5"
        return f"self.{name}"

    def _constructor(self, built: list[Step], bias: str) -> list[str]:
        plan = self.plan
        shares = [
            line
            for label, name in self.heads.items()
            if name.startswith("self.") and label != "all"
            for line in share_lines(name, label)
        ]
        if any(width_text(stream.type.width) == "key_width" for stream in plan.streams):
            shares.append(key_width_line(plan.genome.projections.qk_dim))
        scales = [f"self.{name} = {text}" for name, text in self.scales.items()]
        lines = [*SIZE_LINES, *shares, *scales]
        for stream in plan.streams:
            if stream.is_projected:
                width = product_text(self._count(stream.type.heads), width_text(stream.type.width))
                lines.append(f"self.w{stream.name} = nn.Linear(dim, {width}, bias={bias})")
        for step in built:
            defaults = step.primitive.defaults()
            sizes = step.bind(size_texts(step, self._count(step.heads), bias))
            arguments = [f"{name}={text}" for name, text in sizes.items()]
            params = {k: v for k, v in step.params.items() if v != defaults[k]}
            arguments += [f"{k}={v!r}".replace("'", '"') for k, v in params.items()]
            function = self.use(self.module_class(step.primitive.module))
            lines.append(call_line(f"self.{step.module}", function, arguments))
        if plan.genome.projections.has_wo:
            merged = width_text(plan.output.width)
            if plan.genome.projections.merge != "sum":
                merged = product_text(self._count(plan.output.heads), merged)
            lines.append(f"self.wo = nn.Linear({merged}, dim)")
        return lines

    def _count(self, label: str) -> str:
        return "heads" if label == "all" else self._heads(label)
