"""Run exported files where ``nas`` cannot be imported, and say how far they are from recordings.

Run as a program by recording.py: ``python -I clean.py FOLDER`` reads ``jobs.json`` there and writes
``found.json``. It imports nothing of ours, and of others what an export's users need.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def _class(path: str, name: str) -> Any:
    """A class of a Python file."""
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _py(path: str, state: dict[str, Any]) -> Any:
    block = _class(path, "Attention")().eval()
    block.load_state_dict(state)
    return block


def _timm(path: str, state: dict[str, Any]) -> Any:
    """The attention of a ViT's block, after the block has run whole."""
    from timm.models.vision_transformer import Block

    layer = _class(path, "ViTAttention")
    block = Block(layer().dim, layer().heads, attn_layer=layer, qkv_bias="wq.bias" in state).eval()
    block.attn.load_state_dict(state)
    block(torch.zeros(1, 5, block.attn.dim))
    return block.attn


@lru_cache(maxsize=1)  # to read a program takes longer than all calls of it
def _program(path: str) -> Any:
    return torch.export.load(path).module()


def _pt2(path: str, state: dict[str, Any]) -> Any:
    """Other weights stay in the program, so cases of its own come first."""
    program = _program(path)
    if state:
        program.load_state_dict({f"block.{name}": tensor for name, tensor in state.items()})
    return lambda **given: program(*given.values())


def _onnx(path: str, state: dict[str, Any]) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(**given: torch.Tensor) -> torch.Tensor:
        fed = {name: tensor.numpy() for name, tensor in given.items()}
        return torch.from_numpy(session.run(None, fed)[0])

    return run


def _hf(path: str, state: dict[str, Any]) -> Any:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(path, trust_remote_code=True).eval()
    return lambda **given: model(**given).last_hidden_state


LOADERS = {"py": _py, "timm": _timm, "pt2": _pt2, "onnx": _onnx, "hf": _hf}


def difference(job: dict[str, Any]) -> float:
    """The largest difference over all cases, in parts of the largest output if that is above 1."""
    tensors = load_file(job["tensors"])
    state = {n.removeprefix("state/"): t for n, t in tensors.items() if n.startswith("state/")}
    blocks: dict[bool, Any] = {}
    worst = 0.0
    for index, case in enumerate(job["cases"]):
        is_loaded = case["is_loaded"]
        if is_loaded not in blocks:
            blocks[is_loaded] = LOADERS[job["loader"]](job["path"], state if is_loaded else {})
        prefix = f"{index}/"
        given = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        expected = given.pop("")
        told = {} if case["is_causal"] is None else {"is_causal": case["is_causal"]}
        with torch.no_grad():
            out = blocks[is_loaded](**given, **told)
        if out.shape != expected.shape:
            raise ValueError(f"found outputs {tuple(out.shape)}; expected {tuple(expected.shape)}")
        found = (out.double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
        worst = max(worst, float(found)) if bool(out.isfinite().all()) else float("inf")
    return worst


def main(folder: Path) -> None:
    """All jobs; one that fails leaves its reason."""
    sys.modules["nas"] = None  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: list[float | str] = []
    for job in json.loads((folder / "jobs.json").read_text()):
        try:
            found.append(difference(job))
        except Exception as error:
            lines = str(error).strip().splitlines() or ["no message"]
            found.append(f"{type(error).__name__}: {lines[0][:300]}")
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
