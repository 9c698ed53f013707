"""Run exported files in a process without nas, and report their difference from expected outputs.

checking.py runs this file as a program: ``python -I clean.py FOLDER`` reads ``FOLDER/jobs.json``
and writes ``FOLDER/results.json``. This file imports only packages that users of an exported file
have.
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
    """Return the attention of a timm block with loaded weights, after one call of the block."""
    from timm.models.vision_transformer import Block

    layer = _class(path, "ViTAttention")
    block = Block(layer().dim, layer().heads, attn_layer=layer, qkv_bias="wq.bias" in state).eval()
    block.attn.load_state_dict(state)
    block(torch.zeros(1, 5, block.attn.dim))
    return block.attn


@lru_cache(maxsize=1)  # reading a program takes longer than all of its calls
def _program(path: str) -> Any:
    return torch.export.load(path).module()


def _pt2(path: str, state: dict[str, Any]) -> Any:
    """Load ``state`` into the exported program of a file; return a function that runs the program.

    The program is cached, so loaded weights replace the file's weights for good. The file's own
    weights (an empty ``state``) must therefore be compared first.
    """
    program = _program(path)
    if state:
        program.load_state_dict({f"block.{name}": tensor for name, tensor in state.items()})
    return lambda **inputs: program(*inputs.values())


def _onnx(path: str, state: dict[str, Any]) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(**inputs: torch.Tensor) -> torch.Tensor:
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return torch.from_numpy(session.run(None, arrays)[0])

    return run


def _hf(path: str, state: dict[str, Any]) -> Any:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(path, trust_remote_code=True).eval()
    return lambda **inputs: model(**inputs).last_hidden_state


LOADERS = {"py": _py, "timm": _timm, "pt2": _pt2, "onnx": _onnx, "hf": _hf}


def difference(job: dict[str, Any]) -> float:
    """Return the largest difference of a file's outputs, as checking.py defines it.

    Args:
        job: an exported file and its calls, as checking.py writes them.
    """
    tensors = load_file(job["tensors"])
    state = {n.removeprefix("state/"): t for n, t in tensors.items() if n.startswith("state/")}
    blocks: dict[bool, Any] = {}
    worst = 0.0
    for index, case in enumerate(job["cases"]):
        is_loaded = case["is_loaded"]
        if is_loaded not in blocks:
            blocks[is_loaded] = LOADERS[job["loader"]](job["path"], state if is_loaded else {})
        prefix = f"{index}/"
        inputs = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        expected = inputs.pop("")
        options = {} if case["is_causal"] is None else {"is_causal": case["is_causal"]}
        with torch.no_grad():
            out = blocks[is_loaded](**inputs, **options)
        if out.shape != expected.shape:
            raise ValueError(f"found outputs {tuple(out.shape)}; expected {tuple(expected.shape)}")
        gap = (out.double() - expected).abs().max() / max(1.0, float(expected.abs().max()))
        worst = max(worst, float(gap)) if bool(out.isfinite().all()) else float("inf")
    return worst


def main(folder: Path) -> None:
    """Run all jobs of a folder, and write the difference or error message of each to a file."""
    sys.modules["nas"] = None  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: list[float | str] = []
    for job in json.loads((folder / "jobs.json").read_text()):
        try:
            results.append(difference(job))
        except Exception as error:
            lines = str(error).strip().splitlines() or ["no message"]
            results.append(f"{type(error).__name__}: {lines[0][:300]}")
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
