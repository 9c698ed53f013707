"""Write the table of kernels into docs/mechanisms.md: all named mechanisms and docs/genomes.

python -m tests.docs.kernels
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from nas.compiler import Plan, make_plan
from nas.compiler.kernels.softmax import biased_attention
from nas.compiler.lowering import Lowered, distributed, flexible_calls, lower, twin_calls
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import load_genome

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "mechanisms.md"
BEGIN: Final = "<!-- kernels: made by python -m tests.docs.kernels -->\n"
END: Final = "<!-- end of kernels -->\n"
BLOCKS: Final = "all pairs"


def kernels(plan: Plan) -> tuple[str, str]:
    """Return the kernels of a mechanism on a processor, and on a GPU from 256 tokens on."""
    plan = distributed(plan)
    calls, changed = lower(plan), flexible_calls(plan)
    sums = [step.index for step in plan.steps if step.primitive.name == "weighted_sum"]
    cpu = {_kernel(calls.get(index), plan) for index in sums}
    twins = twin_calls(plan)
    gpu = {"FlexAttention" if i in changed else _kernel(calls.get(i), plan) for i in sums}
    gpu = {f"fla, else {kernel}" for kernel in gpu} if twins else gpu
    tiers = [" and ".join(sorted(found)) if found else "none: no sums" for found in (cpu, gpu)]
    return tiers[0], tiers[1]


def _kernel(call: Lowered | None, plan: Plan) -> str:
    if call is None:
        return BLOCKS
    if call.score is None:
        return "mean"
    if call.is_linear:
        return "linear, in chunks" if call.is_gated else "linear"
    if plan.is_windowed:
        return "fused, masked"
    return "fused, biased" if call.function is biased_attention else "fused"


def table() -> str:
    """Return the table in Markdown."""
    genomes = {name: named.genome for name, named in MECHANISMS.items()}
    for path in sorted((ROOT / "docs" / "genomes").glob("*.json")):
        genomes[path.stem] = load_genome(path)
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, genome in genomes.items():
        groups[kernels(make_plan(genome))].append(f"`{name}`")
    rows = ["| processor | GPU | mechanisms |", "|---|---|---|"]
    for (cpu, gpu), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        rows.append(f"| {cpu} | {gpu} | {' '.join(names)} ({len(names)}) |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Return docs/mechanisms.md with today's table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
