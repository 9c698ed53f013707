"""The model card of an exported folder: formula, costs, weights and their seeds, limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import formula_of, make_plan
from nas.costs import attention_cost
from nas.exporting.subject import SEED
from nas.genome.canonical import digest
from nas.genome.mechanisms import names_of

if TYPE_CHECKING:
    from nas.exporting.subject import Subject

_SHIFT: Final = (
    "- The run's task adds to a token's embedding that of the token before, which is not done here."
)


def card(subject: Subject, sizes: Mapping[str, Any], parameters: int) -> str:
    """The text of ``README.md``.

    Args:
        sizes: what ``config.json`` says.
        parameters: of the whole model.
    """
    plan = make_plan(subject.genome)
    head = sizes["architectures"][0].replace("Mechanism", "AutoModel")
    tokens = subject.task.sizes.tokens if subject.task else 64
    costs = attention_cost(
        *(subject.genome,),
        dim=subject.dim,
        heads=subject.heads,
        tokens=tokens,
        qkv_bias=subject.qkv_bias,
    )
    own, origin = ", ".join(map(str, subject.own_layers)), subject.origin
    if subject.kept:
        learned = (
            "The attention of all layers was trained in the search. A run keeps no other weights: "
            f"embeddings, feed-forward networks, norms and head are drawn from seed {SEED}, so the "
            "model must be trained before its outputs mean anything."
        )
    else:
        learned = f"Nothing is trained: all weights are drawn from seed {SEED}."
    # A formula may hold signs that Markdown would take for its own.
    formula, names = f"`{formula_of(plan)}`", " = ".join(names_of(plan.genome))
    direction = (
        "Each token sees itself and earlier ones. `generate` reads all tokens again for each new "
        "one: there is no cache."
        if subject.is_causal
        else "Each token sees all others."
    )
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {'text-generation' if subject.is_causal else 'fill-mask'}",
        "tags: [attention, neural-architecture-search]",
        "---",
        "",
        f"# {names or formula}",
        "",
        *([formula, ""] if names else []),
        "An attention mechanism in a small transformer, in layers "
        f"{own} of {subject.depth}; its digest is {digest(plan.genome)}.",
        *([f"Found in {origin.run}."] if origin.run else [f"Source: {origin.source}."]),
        *([f"Measured there: {origin.results}."] if origin.results else []),
        "",
        "```python",
        "from transformers import AutoModel",
        "",
        'model = AutoModel.from_pretrained("FOLDER", trust_remote_code=True)',
        "```",
        "",
        f"`{head}` loads it with a head on {sizes['vocab_size']} "
        f"tokens. All code is in `{sizes['auto_map']['AutoModel'].partition('.')[0]}.py`.",
        "",
        "## Costs",
        "",
        f"One block of the mechanism at width {subject.dim}, {subject.heads} heads and {tokens} "
        "tokens:",
        "",
        "| multiply-adds | parameters | KV cache at 16 bits, bytes a token |",
        "|---|---|---|",
        f"| {costs.macs:,} | {costs.params:,} | {costs.kv_cache_bytes_per_token:,} |",
        "",
        f"The whole model has {parameters:,} parameters.",
        "",
        "## Weights",
        "",
        learned,
        "",
        "## Limits",
        "",
        f"- {direction}",
        f"- At most {sizes['max_position_embeddings']} tokens; positions are learned.",
        "- No tokenizer: tokens are numbers below the vocabulary's size, such as bytes.",
        "- Masks are (batch, tokens); weights of attention are not returned.",
        *([_SHIFT] if getattr(subject.task, "token_shift", False) else []),
        *(f"- {remark}." for remark in plan.remarks(subject.heads)),
        "",
    ]
    return "\n".join(lines)
