"""Write a mechanism as a folder that transformers loads: a small transformer with it inside.

    AutoModel.from_pretrained(folder, trust_remote_code=True)

The transformer has the sizes of the run's task. The attention weights that a run keeps travel
along; it keeps no others, so the rest is a fresh start, and the model card says so.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from nas.common.errors import ExportError
from nas.compiler import formula_of, make_plan, write
from nas.compiler.inlining import inlined
from nas.exporting.card import card
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.recording import SIZES, Case, Recording
from nas.exporting.subject import SEED, State, Subject
from nas.genome import Genome
from nas.genome.canonical import digest

if TYPE_CHECKING:
    from nas.compiler.source import Written

MODELING: Final = "modeling_mechanism.py"
_TEMPLATE: Final = Path(__file__).with_name("modeling.py")
_CUT: Final = "# Below this line everything is copied.\n"
_VOCABULARY: Final = 256  # bytes, where no task says otherwise
_POSITIONS: Final = 512
_LOST: Final = (
    "Attention: Any = nn.Identity  # the mechanism's\nStandardAttention: Any = nn.Identity\n"
)


def content(subject: Subject) -> dict[str, str | bytes]:
    """The files of the folder by name.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        ExportError: it holds tensors that no file of weights would keep.
    """
    tensors = weights(subject)
    return {
        "config.json": json.dumps(config(subject), indent=2) + "\n",
        "generation_config.json": json.dumps({"use_cache": False}) + "\n",
        MODELING: modeling(subject),
        "model.safetensors": save(tensors, metadata={"format": "pt"}),
        "README.md": card(
            subject, config(subject), sum(tensor.numel() for tensor in tensors.values())
        ),
    }


def config(subject: Subject) -> dict[str, Any]:
    """What ``config.json`` says."""
    task, plan = subject.task, make_plan(subject.genome)
    file, head = MODELING.removesuffix(".py"), _head(subject)
    return {
        "model_type": "nas_mechanism",
        "architectures": [head],
        "auto_map": {
            "AutoConfig": f"{file}.MechanismConfig",
            "AutoModel": f"{file}.MechanismModel",
            f"Auto{head.replace('Mechanism', 'Model')}": f"{file}.{head}",
        },
        "vocab_size": getattr(task, "num_tokens", _VOCABULARY),
        "hidden_size": subject.dim,
        "num_hidden_layers": subject.depth,
        "num_attention_heads": subject.heads,
        "intermediate_size": round(subject.dim * (task.mlp_ratio if task else 2.0)),
        "hidden_act": task.activation if task else "gelu",
        "hidden_dropout_prob": task.dropout if task else 0.0,
        "max_position_embeddings": max(_POSITIONS, task.sizes.tokens if task else 0),
        "initializer_range": task.init_std if task else 0.02,
        "final_norm": task.final_norm if task else True,
        "is_causal": subject.is_causal,
        "mechanism_layers": list(subject.own_layers),
        "mechanism": {
            "genome": plan.genome.to_dict(),
            "digest": digest(plan.genome),
            "formula": formula_of(plan),
        },
        "torch_dtype": "float32",
    }


def modeling(subject: Subject) -> str:
    """The file with all code: the mechanism's class, and the transformer around it."""
    others = [i for i in range(subject.depth) if i not in subject.own_layers]
    kinds = [_written(subject, subject.genome)]
    if others:
        kinds.insert(0, _written(subject, subject.genome_of(others[0])))
    roots = [root for kind in kinds for root in kind.roots]
    sources = {item: text for kind in kinds for item, text in kind.sources.items()}
    texts = [kind.text for kind in kinds]
    if others:
        texts[0] = texts[0].replace("class Attention(", "class StandardAttention(", 1)
    head, _, body = _TEMPLATE.read_text(encoding="utf-8").partition(_CUT)
    if not others:
        body = body.replace(
            "kind = Attention if index in config.mechanism_layers else StandardAttention",
            "kind = Attention",
        )
    about = f'"""{formula_of(make_plan(subject.genome))}, in a small transformer."""'
    imports = head.partition('"""\n\nfrom __future__')[2].replace(_LOST, "").rstrip()
    parts = [f"{about}\n\nfrom __future__{imports}\n", *inlined(roots, sources), *texts, body]
    text = "\n\n".join(parts)
    ast.parse(text)
    return text


def weights(subject: Subject) -> dict[str, Tensor]:
    """The tensors by name: each layer's attention, and a fresh start of all else.

    Raises:
        ExportError: see ``content``.
    """
    found, sizes = {}, config(subject)
    dim, hidden, std = subject.dim, sizes["intermediate_size"], sizes["initializer_range"]
    draws = torch.Generator().manual_seed(SEED)

    def put(name: str, *shape: int) -> None:
        found[name] = torch.randn(shape, generator=draws) * std

    put("model.embed_tokens.weight", sizes["vocab_size"], dim)
    put("model.embed_positions.weight", sizes["max_position_embeddings"], dim)
    norms = ["model.norm"] if sizes["final_norm"] else []
    for layer in range(subject.depth):
        at = f"model.layers.{layer}"
        put(f"{at}.mlp.0.weight", hidden, dim)
        put(f"{at}.mlp.2.weight", dim, hidden)
        found |= {f"{at}.mlp.0.bias": torch.zeros(hidden), f"{at}.mlp.2.bias": torch.zeros(dim)}
        norms += [f"{at}.attention_norm", f"{at}.mlp_norm"]
        block = subject.reference(layer)
        kept = block.float().state_dict()
        if lost := [name for name, _ in block.named_buffers() if name not in kept]:
            raise ExportError(f"{', '.join(lost)}: is in no state_dict, so it cannot be kept.")
        found |= {f"{at}.attention.{name}": tensor for name, tensor in kept.items()}
    for name in norms:
        found |= {f"{name}.weight": torch.ones(dim), f"{name}.bias": torch.zeros(dim)}
    put("lm_head.weight", sizes["vocab_size"], dim)
    return {name: tensor.contiguous() for name, tensor in found.items()}


def recording(subject: Subject) -> Recording:
    """Features of whole models from plain arithmetic in 64 bits: without padding, with it at the
    first row's end, and at its beginning, where tokens have the same features."""
    tensors = {name: tensor.double() for name, tensor in weights(subject).items()}
    draws = torch.Generator().manual_seed(1)
    cases = []
    for batch, tokens in SIZES:
        size = (batch, tokens)
        ids = torch.randint(len(tensors["model.embed_tokens.weight"]), size, generator=draws)
        mask = torch.ones(batch, tokens, dtype=torch.long)
        mask[0, tokens - tokens // 3 :] = 0
        padded = {"input_ids": ids, "attention_mask": mask}
        for given in ({"input_ids": ids}, padded):
            with torch.no_grad():
                cases.append(Case(given, _features(subject, tensors, **given)))
        left = {name: _turned(tensor, tokens // 3) for name, tensor in padded.items()}
        cases.append(Case(left, _turned(cases[-1].expected, tokens // 3)))
    return Recording(tuple(cases))


def _turned(tensor: Tensor, by: int) -> Tensor:
    """The first row's end put before its beginning."""
    return torch.cat([tensor[:1].roll(by, dims=1), tensor[1:]])


def _features(
    subject: Subject, tensors: State, input_ids: Tensor, attention_mask: Tensor | None = None
) -> Tensor:
    """The transformer as its docstring writes it; padding is at the end."""
    sizes, dim = config(subject), (subject.dim,)

    def normed(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, dim, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def mapped(x: Tensor, name: str) -> Tensor:
        return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    padding = None if attention_mask is None else attention_mask == 0
    x = tensors["model.embed_tokens.weight"][input_ids]
    x = x + tensors["model.embed_positions.weight"][: input_ids.shape[1]]
    for layer in range(subject.depth):
        at, block = f"model.layers.{layer}", subject.reference(layer)
        given = normed(x, f"{at}.attention_norm")
        x = x + block(given, key_padding_mask=padding, is_causal=subject.is_causal)
        inner = mapped(normed(x, f"{at}.mlp_norm"), f"{at}.mlp.0")
        inner = F.gelu(inner) if sizes["hidden_act"] == "gelu" else F.relu(inner)
        x = x + mapped(inner, f"{at}.mlp.2")
    return normed(x, "model.norm") if sizes["final_norm"] else x


def _head(subject: Subject) -> str:
    return "MechanismForCausalLM" if subject.is_causal else "MechanismForMaskedLM"


def _written(subject: Subject, genome: Genome) -> Written:
    return write(
        *(make_plan(genome), subject.dim, subject.heads),
        qkv_bias=subject.qkv_bias,
        is_fast=False,
    )


EXPORTS.register("hf")(
    ExportFormat(
        "",
        content,
        takes=("is_causal",),
        needs=("transformers", "safetensors"),
        has_weights=True,
        loader="hf",
        recording=recording,
    )
)
