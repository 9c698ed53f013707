"""Format ``hf``: a folder with a small transformer that contains the mechanism.

    AutoModel.from_pretrained(folder, trust_remote_code=True)

The transformer has the sizes of the task on which the search trained the mechanism. A search saves
attention weights only. All other weights have initial values, as the model card states.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from nas.common.errors import ExportError
from nas.compiler import formula_of
from nas.exporting.card import card
from nas.exporting.checking import SIZES, Case, ExpectedOutputs
from nas.exporting.classes import class_sources
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.request import SEED, ExportRequest, State
from nas.genome.canonical import digest

MODELING: Final = "modeling_mechanism.py"
_TEMPLATE: Final = Path(__file__).with_name("modeling.py")
_CUT: Final = "# Below this line everything is copied.\n"
_PLACEHOLDERS: Final = "Attention: Any", "StandardAttention: Any"  # classes written above the model
_VOCABULARY: Final = 256  # bytes, without a task
_POSITIONS: Final = 512


def content(request: ExportRequest) -> dict[str, str | bytes]:
    """Return the content of each file of the exported folder, by name.

    Raises:
        GenomeError: the mechanism cannot be built at this size.
        ViolationError: the genome does not type-check.
        ExportError: the mechanism has a buffer that its state dict does not include.
    """
    tensors, sizes = weights(request), config(request)
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return {
        "config.json": json.dumps(sizes, indent=2) + "\n",
        "generation_config.json": json.dumps({"use_cache": False}) + "\n",
        MODELING: modeling(request),
        "model.safetensors": save(tensors, metadata={"format": "pt"}),
        "README.md": card(request, sizes, parameters),
    }


def config(request: ExportRequest) -> dict[str, Any]:
    """Return the content of ``config.json``, which describes sizes and mechanism of the model."""
    task, plan = request.task, request.plan
    file = MODELING.removesuffix(".py")
    head = "ForCausalLM" if request.is_causal else "ForMaskedLM"
    return {
        "model_type": "nas_mechanism",
        "architectures": [f"Mechanism{head}"],
        "auto_map": {
            "AutoConfig": f"{file}.MechanismConfig",
            "AutoModel": f"{file}.MechanismModel",
            f"AutoModel{head}": f"{file}.Mechanism{head}",
        },
        "vocab_size": getattr(task, "num_tokens", _VOCABULARY),
        "hidden_size": request.dim,
        "num_hidden_layers": request.depth,
        "num_attention_heads": request.heads,
        "intermediate_size": round(request.dim * (task.mlp_ratio if task else 2.0)),
        "hidden_act": task.activation if task else "gelu",
        "hidden_dropout_prob": task.dropout if task else 0.0,
        "max_position_embeddings": max(_POSITIONS, task.sizes.tokens if task else 0),
        "initializer_range": task.init_std if task else 0.02,
        "final_norm": task.final_norm if task else True,
        "is_causal": request.is_causal,
        "mechanism_layers": list(request.mechanism_layers),
        "mechanism": {
            "genome": plan.genome.to_dict(),
            "digest": digest(plan.genome),
            "formula": formula_of(plan),
        },
        "torch_dtype": "float32",
    }


def modeling(request: ExportRequest) -> str:
    """Return the text of a Python file: the attention's classes, then the model of modeling.py."""
    has_rest = len(request.mechanism_layers) < request.depth
    head, _, body = _TEMPLATE.read_text(encoding="utf-8").partition(_CUT)
    if not has_rest:
        body = body.replace(
            "kind = Attention if index in config.mechanism_layers else StandardAttention",
            "kind = Attention",
        )
    lines = head.partition('"""\n\n')[2].splitlines()
    imports = "\n".join(line for line in lines if not line.startswith(_PLACEHOLDERS)).rstrip()
    docstring = f'"""{formula_of(request.plan)}, in a small transformer."""'
    sources = class_sources(request, has_rest=has_rest)
    imports = imports.replace("  # noqa: F401", "")
    text = "\n\n".join([f"{docstring}\n\n{imports}\n", *sources, body])
    ast.parse(text)
    return text


def weights(request: ExportRequest) -> dict[str, Tensor]:
    """Return the model's weights by name: initial values, except for the attention's.

    The attention of each layer has the weights of ``request.state``.

    Raises:
        ExportError: the mechanism has a buffer that its state dict does not include.
    """
    tensors: dict[str, Tensor] = {}
    sizes, dim = config(request), request.dim
    hidden, std = sizes["intermediate_size"], sizes["initializer_range"]
    generator = torch.Generator().manual_seed(SEED)

    def initialise(name: str, *shape: int) -> None:
        tensors[name] = torch.randn(shape, generator=generator) * std

    initialise("model.embed_tokens.weight", sizes["vocab_size"], dim)
    initialise("model.embed_positions.weight", sizes["max_position_embeddings"], dim)
    norms = ["model.norm"] if sizes["final_norm"] else []
    for layer in range(request.depth):
        prefix = f"model.layers.{layer}"
        initialise(f"{prefix}.mlp.0.weight", hidden, dim)
        initialise(f"{prefix}.mlp.2.weight", dim, hidden)
        tensors[f"{prefix}.mlp.0.bias"] = torch.zeros(hidden)
        tensors[f"{prefix}.mlp.2.bias"] = torch.zeros(dim)
        norms += [f"{prefix}.attention_norm", f"{prefix}.mlp_norm"]
        block = request.reference(layer)
        state = block.float().state_dict()
        if missing := [name for name, _ in block.named_buffers() if name not in state]:
            raise ExportError(f"{', '.join(missing)}: not in the state_dict, so it is not saved.")
        tensors |= {f"{prefix}.attention.{name}": tensor for name, tensor in state.items()}
    for name in norms:
        tensors |= {f"{name}.weight": torch.ones(dim), f"{name}.bias": torch.zeros(dim)}
    initialise("lm_head.weight", sizes["vocab_size"], dim)
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def expected(request: ExportRequest) -> ExpectedOutputs:
    """Return calls of the exported model, with the features that they must give in float64.

    Some calls have no padding, some have padding at the end of the first row, and some have padding
    at the start of the first row. Padding at the start shifts a row's features, but does not change
    them.
    """
    tensors = {name: tensor.double() for name, tensor in weights(request).items()}
    generator = torch.Generator().manual_seed(1)
    cases = []
    for size in SIZES:
        vocabulary, tokens = len(tensors["model.embed_tokens.weight"]), size[1]
        ids = torch.randint(vocabulary, size, generator=generator)
        mask = torch.ones(size, dtype=torch.long)
        mask[0, tokens - tokens // 3 :] = 0
        padded = {"input_ids": ids, "attention_mask": mask}
        for inputs in ({"input_ids": ids}, padded):
            with torch.no_grad():
                cases.append(Case(inputs, _features(request, tensors, **inputs)))
        shifted = {name: _roll(tensor, tokens // 3) for name, tensor in padded.items()}
        cases.append(Case(shifted, _roll(cases[-1].expected, tokens // 3)))
    return ExpectedOutputs(tuple(cases))


def _roll(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor with the last ``count`` tokens of the first row moved to the row's start."""
    return torch.cat([tensor[:1].roll(count, dims=1), tensor[1:]])


def _features(
    request: ExportRequest, tensors: State, input_ids: Tensor, attention_mask: Tensor | None = None
) -> Tensor:
    """Return the transformer's features; padding (0 in the mask) must be at the end of a row."""
    sizes, dim = config(request), (request.dim,)

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, dim, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    padding = None if attention_mask is None else attention_mask == 0
    x = tensors["model.embed_tokens.weight"][input_ids]
    x = x + tensors["model.embed_positions.weight"][: input_ids.shape[1]]
    for layer in range(request.depth):
        prefix, block = f"model.layers.{layer}", request.reference(layer)
        x = x + block(
            norm(x, f"{prefix}.attention_norm"),
            key_padding_mask=padding,
            is_causal=request.is_causal,
        )
        inner = linear(norm(x, f"{prefix}.mlp_norm"), f"{prefix}.mlp.0")
        inner = F.gelu(inner) if sizes["hidden_act"] == "gelu" else F.relu(inner)
        x = x + linear(inner, f"{prefix}.mlp.2")
    return norm(x, "model.norm") if sizes["final_norm"] else x


EXPORTS.register("hf")(
    ExportFormat(
        "",
        content,
        options=("is_causal",),
        packages=("transformers", "safetensors"),
        has_weights=True,
        loader="hf",
        expected=expected,
    )
)
