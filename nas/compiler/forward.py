"""Write the methods of a plan's class: ``forward``, and ``attend`` for what goes part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.compiler.calls import lowered_call
from nas.compiler.labels import LINE, arguments, call_lines, heads_text, indented, on_rows
from nas.compiler.lowering import live, uncalled
from nas.primitives.base import STREAM_OF_PORT

if TYPE_CHECKING:
    from nas.compiler.lowering import Fused
    from nas.compiler.plan import Plan, Step, Stream


def methods(plan: Plan, fused: Fused) -> list[str]:
    """The lines of all methods but the constructor."""
    lines = [*signature_lines(), *indented(_forward(plan, fused))]
    for method in _attend_methods(plan, fused):
        lines += ["", *method]
    return lines


def signature_lines() -> list[str]:
    """The head of ``forward``."""
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


def _forward(plan: Plan, fused: Fused) -> list[str]:
    lines = []
    if plan.unsafe:
        lines += [
            "if is_causal:",
            f'    raise ValueError("{", ".join(plan.unsafe)} sees later tokens: not causal")',
        ]
    lines += _masks(plan, fused)
    needed, hidden = live(plan, fused), uncalled(plan, fused)
    read = [stream for stream in plan.streams if stream.name in needed]
    is_shared = sum(stream.is_projected for stream in read) > 1
    lines += ["shared = rounded(x)"] if is_shared else []
    lines += [_read(stream, "shared" if is_shared else "x") for stream in read]
    for stage, steps in _stages(plan):
        for step in steps:
            if not step.is_paired and step.index not in hidden:
                lines += call_lines(
                    step.variable, *_call(step, "seen" if plan.is_windowed else "mask")
                )
        pairs = _without_hidden(plan, [step for step in steps if step.is_paired], fused)
        if pairs and plan.is_blockwise and not _is_one_call(plan, fused, stage):
            lines += _parts(plan, stage, pairs, fused)
        else:
            is_causal = _is_causal_by_word(plan, fused)
            for step in pairs:
                lines += _written(step, fused, is_causal=is_causal)
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
    left = _without_hidden(plan, list(plan.steps), fused)
    if any(call.has_silent_key or call.scores_pairs for call in fused.values()):
        return False
    is_alone = all(
        s.index in fused or not (s.is_paired or "mask" in s.primitive.extras) for s in left
    )
    return bool(fused) and is_alone and not plan.is_windowed


def _is_one_call(plan: Plan, fused: Fused, stage: int) -> bool:
    """Whether all about pairs in a stage is one call that takes long sequences by itself."""
    own = [s for s in plan.steps if s.is_paired and s.stage == stage]
    left = _without_hidden(plan, own, fused)
    is_whole = all(s.index in fused and not fused[s.index].scores_pairs for s in left)
    return not plan.is_windowed and is_whole


def _stages(plan: Plan) -> list[tuple[int, list[Step]]]:
    last = max(step.stage for step in plan.steps)
    return [(n, [step for step in plan.steps if step.stage == n]) for n in range(last + 1)]


def _without_hidden(plan: Plan, steps: list[Step], fused: Fused) -> list[Step]:
    hidden = uncalled(plan, fused)
    return [step for step in steps if step.index not in hidden]


# A stage whose calls about pairs may be made for some queries at a time is a method of its own.


def _attend_methods(plan: Plan, fused: Fused) -> list[list[str]]:
    """The methods ``attend``, one for each stage that has one."""
    if not plan.is_blockwise:
        return []
    found = []
    for stage, steps in _stages(plan):
        pairs = _without_hidden(plan, [step for step in steps if step.is_paired], fused)
        if pairs and not _is_one_call(plan, fused, stage):
            found.append(_method(plan, stage, pairs, fused))
    return found


def _method(plan: Plan, stage: int, pairs: list[Step], fused: Fused) -> list[str]:
    rows, keys = _operands_by_side(pairs, fused)
    names = [*(on_rows(name, keys) for name in rows), *keys, "x"]
    given = [
        "self",
        *(f"{name}: Tensor" for name in names),
        "mask: Tensor | None",
        "start: int",
    ]
    line = f"    {', '.join(given)}"
    written = [line] if len(line) <= LINE else [f"    {one}," for one in given]
    lines = [f"def {_method_name(plan, stage)}(", *written, ") -> Tensor:"]
    if len(results := _results(pairs, fused)) > 1:
        lines[-1] = ") -> tuple[Tensor, ...]:"
    lines.append(
        '    """Queries from ``start`` on, with their rows of x, against the keys given."""'
    )
    for step in pairs:
        lines += indented(_written(step, fused, keys))
    return [*lines, f"    return {', '.join(results)}"]


def _parts(plan: Plan, stage: int, pairs: list[Step], fused: Fused) -> list[str]:
    """Call the method of a stage for all queries, part by part."""
    sides = [_tuple(side) for side in _operands_by_side(pairs, fused)]
    given = [f"self.{_method_name(plan, stage)}", *sides, "x"]
    target = ", ".join(_results(pairs, fused))
    if plan.is_windowed:
        given += ["attn_mask", "key_padding_mask", "is_causal", *_limits(plan)]
        return call_lines(target, "by_windows", given)
    # What a step computes of a pair and what it was computed from: larger ones cut themselves.
    hidden = [step for step in pairs if step.index in fused and fused[step.index].scores_pairs]
    planes = 2 * (len(pairs) + 2 * len(hidden))  # a score and its softmax are in such a call
    given += ["mask" if plan.needs_mask or fused else "None", f"planes={planes}"]
    return call_lines(target, "by_rows", given)


def _tuple(names: list[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def _operands_by_side(pairs: list[Step], fused: Fused) -> tuple[list[str], list[str]]:
    """The tokens that a stage reads: as queries, and as keys and values."""
    rows: dict[str, None] = {}
    keys: dict[str, None] = {}
    calls = [fused[step.index] for step in pairs if step.index in fused]
    for step in [*(part for call in calls for part in (*call.scores, *call.sums)), *pairs]:
        for operand in step.operands:
            if operand.port.name in STREAM_OF_PORT:
                (rows if operand.port.name == "query" else keys)[operand.variable] = None
    return list(rows), list(keys)


def _results(pairs: list[Step], fused: Fused) -> list[str]:
    """The tokens that a stage makes."""
    called = [fused[step.index].sums if step.index in fused else (step,) for step in pairs]
    return [step.variable for steps in called for step in steps if step.makes_tokens]


def _method_name(plan: Plan, stage: int) -> str:
    return (
        "attend"
        if max(step.stage for step in plan.steps if step.is_paired) == 0
        else f"attend_{stage}"
    )


def _read(stream: Stream, projected: str) -> str:
    source = f"self.w{stream.name}({projected})" if stream.is_projected else "x"
    return f"{stream.name} = split_heads({source}, {heads_text(stream.type.heads, 'self.heads')})"


def _written(
    step: Step, fused: Fused, keys: list[str] | None = None, *, is_causal: bool = False
) -> list[str]:
    """The call of a step about pairs, or what replaces it."""
    if step.index in fused:
        return lowered_call(fused[step.index], keys, is_causal)
    return call_lines(step.variable, *_call(step, "mask", keys))


def _call(step: Step, mask: str, keys: list[str] | None = None) -> tuple[str, list[str]]:
    """The function that a step calls, and its arguments.

    Args:
        keys: inside a method, what it calls the tokens that it reads as keys.
    """
    known = {"x": "x", "mask": mask}
    given = [*arguments(step, keys), *(f"{n}={known[n]}" for n in step.primitive.extras)]
    if keys is not None and step.primitive.is_positional:
        given.append("start=start")
    return f"self.{step.module}", given
