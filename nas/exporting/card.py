"""The model card of an exported folder: formula, origin, costs, weights and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.compiler import formula_of
from nas.costs import attention_cost
from nas.exporting.request import SEED, ExportRequest
from nas.genome.canonical import digest
from nas.genome.mechanisms import names_of

_TRAINED = (
    "The attention weights of all layers were trained in the search. A run saves no other weights: "
    "embeddings, feed-forward networks, norms and head are initialised from seed {seed}, so the "
    "model must be trained before its outputs mean anything."
)
_CARD = """\
---
library_name: transformers
pipeline_tag: {pipeline}
tags: [attention, neural-architecture-search]
---

# {title}

An attention mechanism in a small transformer, in layers {layers} of {depth}{rest}.

{provenance}

```python
from transformers import AutoModel

model = AutoModel.from_pretrained("FOLDER", trust_remote_code=True)
```

`{head}` loads it with a head on {vocabulary} tokens. All code is in `{file}.py`.

## Costs

One block of the mechanism at width {dim}, {heads} heads and {tokens} tokens:

| multiply-adds | parameters | KV cache at 16 bits, bytes a token |
|---|---|---|
| {macs:,} | {params:,} | {cache:,} |

The whole model has {parameters:,} parameters.

## Weights

{weights}

## Limits

{limits}
"""


def card(request: ExportRequest, config: Mapping[str, Any], parameters: int) -> str:
    """Return the text of the exported folder's ``README.md``.

    Args:
        config: the content of ``config.json``.
        parameters: number of parameters of the whole model.
    """
    plan, task = request.plan, request.task
    dim, heads, tokens = request.dim, request.heads, task.sizes.tokens if task else 64
    cost = attention_cost(
        request.genome, dim=dim, heads=heads, tokens=tokens, qkv_bias=request.qkv_bias
    )
    # In backticks, since Markdown would interpret signs of the formula.
    formula, names = f"`{formula_of(plan)}`", " = ".join(names_of(plan.genome))
    has_rest = len(request.mechanism_layers) < request.depth
    limits = [
        "Each token attends to itself and to earlier tokens. `generate` recomputes all tokens for "
        "each new token: there is no cache."
        if request.is_causal
        else "Each token attends to all tokens.",
        f"At most {config['max_position_embeddings']} tokens; positions are learned.",
        "No tokenizer: token ids are numbers below the vocabulary size, such as bytes.",
        "Masks are (batch, tokens); attention weights are not returned.",
        *(f"{remark}." for remark in plan.remarks(heads)),
    ]
    if getattr(task, "token_shift", False):
        limits.append(
            "The run's task adds the embedding of the previous token to each token's embedding; "
            "this model does not."
        )
    provenance = [f"Digest: {digest(plan.genome)}", *request.provenance.lines()]
    return _CARD.format(
        pipeline="text-generation" if request.is_causal else "fill-mask",
        title=f"{names}\n\n{formula}" if names else formula,
        layers=", ".join(map(str, request.mechanism_layers)),
        depth=request.depth,
        rest=f"; the others have {request.genome.placement.rest}" if has_rest else "",
        provenance="\n".join(f"- {line.strip()}" for line in provenance),
        head=config["architectures"][0].replace("Mechanism", "AutoModel"),
        vocabulary=config["vocab_size"],
        file=config["auto_map"]["AutoModel"].partition(".")[0],
        dim=dim,
        heads=heads,
        tokens=tokens,
        macs=cost.macs,
        params=cost.params,
        cache=cost.kv_cache_bytes_per_token,
        parameters=parameters,
        weights=_TRAINED.format(seed=SEED)
        if request.weights
        else f"Nothing is trained: all weights are initialised from seed {SEED}.",
        limits="\n".join(f"- {line}" for line in limits),
    )
