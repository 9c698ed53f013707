"""Formulas of mechanisms, on one line each.

    softmax((Q·Kᵀ)/√d)·V·W_O

Q, K and V are projections of the input. X is the whole input, and x is the part of the input that
belongs to a head. A result that several nodes read gets a name, as in "A1 = gelu(V); ...".
"""

from __future__ import annotations

import string
from collections import Counter
from typing import TYPE_CHECKING

from nas.compiler.plan import make_plan
from nas.genome import ALL, Genome, Ref

if TYPE_CHECKING:
    from nas.compiler.plan import Plan, Step


def formula(genome: Genome) -> str:
    """Return the formula of a genome, or raise the errors of ``make_plan``."""
    return formula_of(make_plan(genome))


def formula_of(plan: Plan) -> str:
    """Return the formula of a plan's mechanism."""
    counts = Counter(operand.ref for step in plan.steps for operand in step.operands)
    text: dict[Ref, str] = {s.name: _stream(plan, s.name, s.is_projected) for s in plan.streams}
    named: list[str] = []
    for step in plan.steps:
        written = _written(step, text)
        if counts[step.index] > 1:
            name = f"A{len(named) + 1}"
            named.append(f"{name} = {written}")
            written = name
        text[step.index] = written
    return "; ".join([*named, _output(plan, text[plan.steps[-1].index]) + _labels(plan)])


def _stream(plan: Plan, name: str, is_projected: bool) -> str:
    if is_projected:
        return name.upper()
    return "X" if plan.genome.projections.raw == "shared" else "x"


def _written(step: Step, text: dict[Ref, str]) -> str:
    operands = {o.port.name: text[o.ref] for o in step.operands}
    gates = [text[o.ref] for o in step.operands if o.port.kind.is_gates]
    operands |= {"gates": gates[0]} if gates else {}
    names = {field for _, field, _, _ in string.Formatter().parse(step.primitive.notation) if field}
    params = {k: _value(v) for k, v in step.params.items()}
    written = step.primitive.notation.format(**(params | operands))
    defaults = step.primitive.defaults()
    rest = [
        f"{k}={_value(v)}" for k, v in step.params.items() if k not in names and v != defaults[k]
    ]
    return f"{written}[{', '.join(rest)}]" if rest else written


def _value(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"


def _output(plan: Plan, text: str) -> str:
    projections = plan.genome.projections
    merged = f"Σ_heads {text}" if projections.merge == "sum" else text
    return f"({merged})·W_O" if projections.has_wo else merged


def _labels(plan: Plan) -> str:
    projections, used = plan.genome.projections, {s.name for s in plan.streams if s.is_projected}
    labels = []
    if "q" in used and projections.q_heads != "all":
        labels.append(_heads(projections.q_heads, "query head"))
    if used & {"k", "v"} and projections.kv_heads != "all":
        labels.append(_heads(projections.kv_heads, "kv head"))
    if projections.qk_dim != "all":
        labels.append(f"d_k = {projections.qk_dim} d_h")
    visibility = plan.genome.visibility
    if visibility.window is not None:
        labels.append(f"window {visibility.window}")
        if visibility.global_tokens:
            plural = "s" if visibility.global_tokens > 1 else ""
            labels.append(f"{visibility.global_tokens} global token{plural}")
    if plan.genome.placement != ALL:
        layers = {"first": "first layer only", "alternate": "every other layer"}
        placement = str(plan.genome.placement)
        labels.append(layers.get(placement, placement))
    return f"   [{', '.join(labels)}]" if labels else ""


def _heads(label: str, noun: str) -> str:
    return f"1 {noun}" if label == "one" else f"{label} H {noun}s"
