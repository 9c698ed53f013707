"""Write a plan as its authors would in torch: the form that people read and take away.

Equal to the fast form (emit.py) in values, gradients and parameters. Dot products under softmax are
``F.scaled_dot_product_attention``; primitives without parameters are written as expressions, others
are copied as the classes that they are. No line of it depends on a number of tokens, so that it can
be exported with any.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.emit import constructor_lines, docstring_lines, size_texts
from nas.compiler.forward import signature_lines
from nas.compiler.helpers import linear_attention, visible_mean
from nas.compiler.inlining import inlined, written_out
from nas.compiler.labels import call_lines, heads_text, indented
from nas.compiler.lowering import live, lower, uncalled
from nas.compiler.specialising import specialised
from nas.genome import key_width, share

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Plan, Step

# The rules of lowering whose calls torch has a function for, or one of helpers.py.
RULES: Final = ("dot_product", "grouped_heads", "uniform", "softmax_free")


@dataclass
class _Writing:
    """A plan on its way to text.

    Attributes:
        heads: expressions for labels of heads, by label.
        written: the steps that are expressions.
        constants: numbers that the constructor computes, by the name of an attribute.
        roots: what the text uses that has to be copied.
        sources: classes of primitives without what their parameters never reach.
    """

    plan: Plan
    fused: dict[int, Lowered]
    heads: dict[str, str]
    written: set[int] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    roots: list[Any] = field(default_factory=list)
    sources: dict[Any, str] = field(default_factory=dict)

    def repeated(self, operand: Operand, step: Step) -> str:
        """An operand with as many heads as the step."""
        name = operand.variable
        if not operand.is_repeated:
            return name
        return f"{name}.repeat_interleave({self.heads[step.heads]} // {name}.shape[1], dim=1)"


def plain_parts(plan: Plan, dim: int, heads: int, qkv_bias: bool) -> list[str]:
    """The sources of the class ``Attention`` and, before it, of what it uses."""
    fused = {
        index: call
        for index, call in lower(plan, RULES).items()
        if call.normaliser.primitive.name in ("softmax", "uniform", "softmax_free")
    }
    writing = _Writing(plan, fused, _head_names(plan))
    forward = _forward(writing)
    constructor = _constructor(writing, qkv_bias)
    lines = [
        "class Attention(nn.Module):",
        *indented(docstring_lines(plan)),
        "",
        f"    def __init__(self, dim: int = {dim}, heads: int = {heads}) -> None:",
        *indented(constructor, 2),
        "",
        *indented(signature_lines()),
        *indented(forward, 2),
    ]
    text = "\n".join(lines) + "\n"
    helpers = [found for found in (share, key_width) if f"{found.__name__}(" in text]
    return [*inlined([*helpers, *writing.roots], writing.sources), text]


def _head_names(plan: Plan) -> dict[str, str]:
    """Expressions for the labels of heads that a plan may have."""
    projections = plan.genome.projections
    names = {"all": "self.heads", "one": "1"}
    for label, name in ((projections.q_heads, "q_heads"), (projections.kv_heads, "kv_heads")):
        names.setdefault(label, f"self.{name}")
    labels = [stream.type.heads for stream in plan.streams] + [step.heads for step in plan.steps]
    for label in labels:
        names.setdefault(label, heads_text(label, "self.heads"))
    return names


def _constructor(writing: _Writing, qkv_bias: bool) -> list[str]:
    """Sizes, projections, and the modules that are called or hold parameters."""
    plan = writing.plan
    replaced = uncalled(plan, writing.fused) | set(writing.fused) | writing.written
    built = [s for s in plan.steps if s.index not in replaced or s.primitive.is_parametric]
    own = [
        f"{name} = {heads_text(label)}"
        for label, name in writing.heads.items()
        if name.startswith("self.") and label != "all"
    ]
    own += [f"self.{name} = {text}" for name, text in writing.constants.items()]
    lines = constructor_lines(plan, qkv_bias, own, [_read_alone(writing, s, built) for s in built])
    for label, name in writing.heads.items():
        if name.startswith("self.") and label != "all":
            text = heads_text(label)
            lines = [one if one.startswith(name) else one.replace(text, name) for one in lines]
    return lines


def _read_alone(writing: _Writing, step: Step, built: list[Step]) -> Step:
    """A step with the parameters that its class takes, once others are left out of its source."""
    module = step.primitive.module
    writing.roots.append(module)
    if any(s.params != step.params for s in built if s.primitive is step.primitive):
        return step
    writing.sources[module], kept = specialised(module, step.params)
    return replace(step, params={k: v for k, v in step.params.items() if k in kept})


def _forward(writing: _Writing) -> list[str]:
    plan, fused = writing.plan, writing.fused
    needed, hidden = live(plan, fused), uncalled(plan, fused)
    steps = [step for step in plan.steps if step.index not in hidden]
    lines = [line for step in steps for line in _step_lines(writing, step)]
    streams = []
    for stream in plan.streams:
        if stream.name in needed:
            source = f"self.w{stream.name}(x)" if stream.is_projected else "x"
            count = writing.heads[stream.type.heads]
            cut = f"unflatten(-1, ({count}, -1)).transpose(1, 2)"
            streams.append(f"{stream.name} = {source}.{cut}")
    out = plan.steps[-1].variable
    is_sum = plan.genome.projections.merge == "sum"
    merged = f"{out}.sum(dim=1)" if is_sum else f"{out}.transpose(1, 2).flatten(2)"
    result = f"self.wo({merged})" if plan.genome.projections.has_wo else merged
    return [*_refusal(plan), *_mask_lines(writing, steps), *streams, *lines, f"return {result}"]


def _refusal(plan: Plan) -> list[str]:
    if not plan.unsafe:
        return []
    return [
        "if is_causal:",
        f'    raise ValueError("{", ".join(plan.unsafe)} sees later tokens: not causal")',
    ]


def _step_lines(writing: _Writing, step: Step) -> list[str]:
    """One call: by torch's attention, by a helper, as an expression, or of a module."""
    if step.index in writing.fused:
        return _call_lines(writing, writing.fused[step.index])
    operands = [writing.repeated(operand, step) for operand in step.operands]
    mask = "mask" if step.is_paired or not writing.plan.is_windowed else "seen"
    extras = {name: {"x": "x", "mask": mask}[name] for name in step.primitive.extras}
    texts = {"filtered": "False"} | size_texts(step, "False") | _literals(step)
    given = dict(zip(_argument_names(step), operands, strict=True)) | extras | {"start": "0"}
    found = written_out(step, given, texts)
    if found is not None:
        writing.written.add(step.index)
        writing.constants |= found.constants
        writing.roots += found.roots
        return found.lines
    given_extras = [f"{name}={text}" for name, text in extras.items()]
    return call_lines(step.variable, f"self.{step.module}", [*operands, *given_extras])


def _argument_names(step: Step) -> list[str]:
    """What ``forward`` calls its operands: the first arguments after ``self``."""
    names = list(inspect.signature(step.primitive.module.forward).parameters)
    return names[1 : 1 + len(step.operands)]


def _literals(step: Step) -> dict[str, str]:
    return {name: repr(value) for name, value in step.params.items()}


def _call_lines(writing: _Writing, call: Lowered) -> list[str]:
    """Aggregations that torch, or a helper, has a function for."""
    step, name = call.sums[0], call.normaliser.primitive.name
    values = step.operands[1]
    if name == "uniform":
        writing.roots.append(visible_mean)
        return [f"{step.variable} = visible_mean({writing.repeated(values, step)}, mask)"]
    (score,) = call.scores
    query, key = score.operands
    scale = f"scale_{score.index}"
    if name == "softmax_free" or score.width != score.rank:  # torch's own is of the width
        writing.constants[scale] = f"({size_texts(score, 'False')['rank']}) ** -0.5"
    if name == "softmax_free":
        writing.roots.append(linear_attention)
        given = [writing.repeated(o, s) for o, s in ((query, score), (key, score), (values, step))]
        return call_lines(step.variable, "linear_attention", [*given, "mask", f"self.{scale}"])
    is_grouped = key.is_repeated and values.is_repeated and not query.is_repeated
    given = [key.variable, values.variable]
    if not is_grouped:
        given = [writing.repeated(key, score), writing.repeated(values, step)]
    given = [writing.repeated(query, score), *given, "mask"]
    given += ["is_causal=is_causal and mask is None"] if _is_by_word(writing) else []
    given += [f"scale=self.{scale}"] if scale in writing.constants else []
    given += ["enable_gqa=True"] if is_grouped else []
    return call_lines(step.variable, "F.scaled_dot_product_attention", given)


def _is_by_word(writing: _Writing) -> bool:
    """Whether torch's attention alone asks for masks: then it may be told "causal" by word."""
    plan, fused = writing.plan, writing.fused
    hidden = uncalled(plan, fused)
    others = [s for s in plan.steps if s.index not in hidden and s.index not in fused]
    is_alone = not any("mask" in step.primitive.extras for step in others)
    is_torchs = all(call.normaliser.primitive.name == "softmax" for call in fused.values())
    return is_alone and is_torchs and not plan.is_windowed and not plan.unsafe


def _mask_lines(writing: _Writing, steps: list[Step]) -> list[str]:
    """The mask of the calls that ask for one: ``mask``, and before a window ``seen``."""
    plan = writing.plan
    asking = [s for s in steps if s.index in writing.fused or "mask" in s.primitive.extras]
    if not asking:
        return []
    past = "torch.ones(n, n, dtype=torch.bool, device=x.device).tril()"
    lines = [
        "mask, n = attn_mask, x.shape[1]"
        if not plan.unsafe or plan.is_windowed
        else "mask = attn_mask",
        "if key_padding_mask is not None:",
        "    kept = ~key_padding_mask[:, None, None]",
        "    mask = kept if mask is None else mask & kept",
    ]
    if _is_by_word(writing):
        lines += [
            "if is_causal and mask is not None:  # torch takes one of the two",
            f"    mask = mask & {past}",
        ]
    elif not plan.unsafe and not (plan.is_windowed and all(s.is_paired for s in asking)):
        lines += [
            "if is_causal:",
            f"    past = {past}",
            "    mask = past if mask is None else mask & past",
        ]
    lines += _window_mask(plan, asking)
    if not any("n, " in line or "(n" in line for line in lines[1:]):
        lines[0] = "mask = attn_mask"
    return lines


def _window_mask(plan: Plan, asking: list[Step]) -> list[str]:
    """The mechanism's own mask, in the mask."""
    window, count = plan.genome.visibility.window, plan.genome.visibility.global_tokens
    if window is None:
        return []
    near = f"behind.abs() <= {window // 2}"
    lines = [] if all(step.is_paired for step in asking) else ["seen = mask"]
    lines += [
        "place = torch.arange(n, device=x.device)",
        "behind = place[:, None] - place",
    ]
    causal = "" if plan.unsafe else f"behind < {window} if is_causal else "
    lines.append(f"near = {causal}{near}")
    if count:
        lines.append(f"near = near | (place[:, None] < {count}) | (place < {count})")
    if not plan.unsafe:
        lines += ["if is_causal:", "    near = near & (behind >= 0)"]
    return [*lines, "mask = near if mask is None else mask & near"]
