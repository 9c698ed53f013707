"""Write the methods of a plan's class: ``forward``, and ``attend`` for what goes part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.compiler.labels import call_lines, heads_text, indented
from nas.primitives.base import STREAM_OF_PORT, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.compiler.plan import Operand, Plan, Step, Stream

    # The steps whose call is fused, each with its dot product and its softmax.
    Fused = Mapping[int, tuple[Step, Step]]


def methods(plan: Plan, fused: Fused, planes: Mapping[int, int]) -> list[str]:
    """The lines of all methods but the constructor.

    Args:
        planes: numbers that each step keeps for a pair of query and key, about.
    """
    lines = [*_signature(), *indented(_forward(plan, fused, planes))]
    for method in _attend_methods(plan, fused):
        lines += ["", *method]
    return lines


def _signature() -> list[str]:
    return [
        "def forward(",
        "    self,",
        "    x: Tensor,",
        "    attn_mask: Tensor | None = None,",
        "    key_padding_mask: Tensor | None = None,",
        "    is_causal: bool = False,",
        ") -> Tensor:",
        '    """Masks: attn_mask True where allowed, key_padding_mask True at padding."""',
    ]


def _forward(plan: Plan, fused: Fused, planes: Mapping[int, int]) -> list[str]:
    lines = []
    if plan.unsafe:
        lines += [
            "if is_causal:",
            f'    raise ValueError("{", ".join(plan.unsafe)} sees later tokens: not causal")',
        ]
    lines += _masks(plan, fused)
    lines += [_read(stream) for stream in plan.streams]
    for stage, steps in _stages(plan):
        for step in steps:
            if not step.is_paired:
                lines += call_lines(
                    step.variable, *_call(step, "seen" if plan.is_windowed else "mask")
                )
        pairs = _without_hidden([step for step in steps if step.is_paired], fused)
        if pairs and plan.is_blockwise and not _is_one_call(plan, fused, stage):
            kept = sum(planes[step.index] for step in pairs)
            lines += _parts(plan, stage, pairs, fused, kept)
        else:
            for step in pairs:
                lines += call_lines(step.variable, *_whole_call(plan, step, fused))
    out = plan.steps[-1].variable
    is_sum = plan.genome.projections.merge == "sum"
    merged = f"{out}.sum(dim=1)" if is_sum else f"merge_heads({out})"
    lines.append(
        f"return self.wo({merged})" if plan.genome.projections.has_wo else f"return {merged}"
    )
    return lines


def _masks(plan: Plan, fused: Fused) -> list[str]:
    """The masks that calls on the whole sequence ask for."""
    given = ["x", "attn_mask", "key_padding_mask", "is_causal"]
    about_tokens = any("mask" in s.primitive.extras and not s.is_paired for s in plan.steps)
    if not plan.is_windowed:
        if _is_causal_by_word(plan, fused):
            given[-1] = "False"
        needs = plan.needs_mask or bool(fused)
        return call_lines("mask", "visible_keys", given) if needs else []
    lines = call_lines("seen", "visible_keys", given) if about_tokens else []
    if not plan.is_blockwise:
        lines += call_lines("mask", "windowed_keys", [*given, *_limits(plan)])
    return lines


def _limits(plan: Plan) -> list[str]:
    seen = plan.genome.visibility
    return [f"window={seen.window}", f"global_tokens={seen.global_tokens}"]


def _is_causal_by_word(plan: Plan, fused: Fused) -> bool:
    """Whether only fused attention asks for the mask: it is quicker told "causal" than shown."""
    left = _without_hidden(list(plan.steps), fused)
    is_alone = all(
        s.index in fused or not (s.is_paired or "mask" in s.primitive.extras) for s in left
    )
    return bool(fused) and is_alone and not plan.is_windowed


def _is_one_call(plan: Plan, fused: Fused, stage: int) -> bool:
    """Whether all about pairs in a stage is one fused call on the whole sequence."""
    own = [s for s in plan.steps if s.is_paired and s.stage == stage]
    left = _without_hidden(own, fused)
    return not plan.is_windowed and all(step.index in fused for step in left)


def _stages(plan: Plan) -> list[tuple[int, list[Step]]]:
    last = max(step.stage for step in plan.steps)
    return [(n, [step for step in plan.steps if step.stage == n]) for n in range(last + 1)]


def _without_hidden(steps: list[Step], fused: Fused) -> list[Step]:
    hidden = {part.index for pair in fused.values() for part in pair}
    return [step for step in steps if step.index not in hidden]


def _whole_call(plan: Plan, step: Step, fused: Fused) -> tuple[str, list[str]]:
    if step.index not in fused:
        return _call(step, "mask")
    rest = ["is_causal"] if _is_causal_by_word(plan, fused) else []
    return _fused_call(step, fused[step.index][0], rest)


# A stage whose calls about pairs may be made for some queries at a time is a method of its own.


def _attend_methods(plan: Plan, fused: Fused) -> list[list[str]]:
    """The methods ``attend``, one for each stage that has one."""
    if not plan.is_blockwise:
        return []
    found = []
    for stage, steps in _stages(plan):
        pairs = _without_hidden([step for step in steps if step.is_paired], fused)
        if pairs and not _is_one_call(plan, fused, stage):
            found.append(_method(plan, stage, pairs, fused))
    return found


def _method(plan: Plan, stage: int, pairs: list[Step], fused: Fused) -> list[str]:
    rows, keys = _operands_by_side(pairs, fused)
    names = [*(_on_rows(name, keys) for name in rows), *keys, "x"]
    arguments = [
        "self",
        *(f"{name}: Tensor" for name in names),
        "mask: Tensor | None",
        "start: int",
    ]
    lines = [f"def {_method_name(plan, stage)}(", f"    {', '.join(arguments)}", ") -> Tensor:"]
    if len(results := _results(pairs)) > 1:
        lines[-1] = ") -> tuple[Tensor, ...]:"
    lines.append(
        '    """Queries from ``start`` on, with their rows of x, against the keys given."""'
    )
    for step in pairs:
        if step.index in fused:
            call = _fused_call(step, fused[step.index][0], [], keys)
        else:
            call = _call(step, "mask", keys)
        lines += indented(call_lines(step.variable, *call))
    return [*lines, f"    return {', '.join(results)}"]


def _parts(plan: Plan, stage: int, pairs: list[Step], fused: Fused, planes: int) -> list[str]:
    """Call the method of a stage for all queries, part by part."""
    sides = [_tuple(side) for side in _operands_by_side(pairs, fused)]
    given = [f"self.{_method_name(plan, stage)}", *sides, "x"]
    target = ", ".join(_results(pairs))
    if plan.is_windowed:
        given += ["attn_mask", "key_padding_mask", "is_causal", *_limits(plan)]
        return call_lines(target, "by_windows", given)
    given += ["mask" if plan.needs_mask or fused else "None", f"planes={planes}"]
    return call_lines(target, "by_rows", given)


def _tuple(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def _operands_by_side(pairs: list[Step], fused: Fused) -> tuple[list[str], list[str]]:
    """The tokens that a stage reads: as queries, and as keys and values."""
    rows: dict[str, None] = {}
    keys: dict[str, None] = {}
    for step in [*(fused[s.index][0] for s in pairs if s.index in fused), *pairs]:
        for operand, port in zip(step.operands, step.primitive.signatures[0].inputs, strict=True):
            if port.name in STREAM_OF_PORT:
                (rows if port.name == "query" else keys)[operand.variable] = None
    return list(rows), list(keys)


def _results(pairs: list[Step]) -> list[str]:
    return [step.variable for step in pairs if step.variable.startswith(Kind.TOKENS)]


def _method_name(plan: Plan, stage: int) -> str:
    return (
        "attend"
        if max(step.stage for step in plan.steps if step.is_paired) == 0
        else f"attend_{stage}"
    )


def _on_rows(name: str, keys: list[str]) -> str:
    """A stream that is read as queries and as keys has two names in a method."""
    return f"{name}_rows" if name in keys else name


def _read(stream: Stream) -> str:
    source = f"self.w{stream.name}(x)" if stream.is_projected else "x"
    return f"{stream.name} = split_heads({source}, {heads_text(stream.type.heads, 'self.heads')})"


def _call(step: Step, mask: str, keys: list[str] | None = None) -> tuple[str, list[str]]:
    """The function that a step calls, and its arguments.

    Args:
        keys: inside a method, what it calls the tokens that it reads as keys.
    """
    arguments = _arguments(step, keys)
    given = {"x": "x", "mask": mask}
    arguments += [f"{name}={given[name]}" for name in step.primitive.extras]
    if keys is not None and step.primitive.is_positional:
        arguments.append("start=start")
    return f"self.{step.module}", arguments


def _fused_call(
    step: Step, score: Step, rest: list[str], keys: list[str] | None = None
) -> tuple[str, list[str]]:
    """The same for an aggregation that is fused with its dot product and softmax."""
    values = _arguments(step, keys)[1]
    arguments = [*_arguments(score, keys), values, "mask", f"self.scale_{step.index}"]
    return "dot_product_attention", arguments + rest


def _arguments(step: Step, keys: list[str] | None) -> list[str]:
    ports = step.primitive.signatures[0].inputs
    return [
        _operand(operand, step, keys if port.name == "query" else None)
        for operand, port in zip(step.operands, ports, strict=True)
    ]


def _operand(operand: Operand, step: Step, keys: list[str] | None) -> str:
    name = operand.variable if keys is None else _on_rows(operand.variable, keys)
    if not operand.is_repeated:
        return name
    return f"repeat_heads({name}, {heads_text(step.heads, 'self.heads')})"
