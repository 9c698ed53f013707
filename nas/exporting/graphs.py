"""Formats ``pt2`` and ``onnx``: graphs of an exported class, for any batch size and length.

    y = graph(x, key_padding_mask)

x and y have the shape (batch, tokens, dim); key_padding_mask is (batch, tokens), True at padding.
``ExportRequest.is_causal`` states whether later tokens are hidden.
"""

from __future__ import annotations

import io
import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from nas.common import install_command
from nas.common.errors import ExportError
from nas.common.text import first_line
from nas.compiler.inlining import file_source
from nas.exporting.formats import (
    EXPORTS,
    ExportFormat,
    ExportRequest,
    largest_difference,
    random_inputs,
)
from nas.exporting.python_file import class_sources
from nas.genome.canonical import digest

_OPSET: Final = 20  # opset 23's Attention is too recent in onnxruntime
_SIZES: Final = (2, 7)  # batch and tokens of tracing; torch specialises on 0 and 1
_PACKAGES: Final = ("onnx", "onnxscript", "onnxruntime")


class _Graph(nn.Module):
    def __init__(self, block: nn.Module, is_causal: bool) -> None:
        super().__init__()
        self.block, self.is_causal = block, is_causal

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        out: Tensor = self.block(x, None, key_padding_mask, self.is_causal)
        return out


def _traced(request: ExportRequest, *, fuse: bool = True) -> ExportedProgram:
    weights = request.block().state_dict()
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(file_source(class_sources(request, fuse=fuse)), scope)  # noqa: S102 - our own text
    with torch.random.fork_rng(devices=[]):
        block = scope["Attention"]()
    block.load_state_dict(weights)
    x, _, padding = random_inputs(*_SIZES, request.dim)
    shape = {0: Dim("batch"), 1: Dim("tokens")}
    try:
        with warnings.catch_warnings(action="ignore"):
            return torch.export.export(
                _Graph(block, request.is_causal).eval(),
                (x, padding),
                dynamic_shapes=(shape, shape),
                strict=False,
            )
    except Exception as error:  # torch raises many types
        reason = f"{type(error).__name__}: {first_line(error).rstrip('.')}"
        raise ExportError(
            f"torch.export cannot trace the mechanism ({reason}); expected a .py file."
        ) from error


def pt2(request: ExportRequest) -> bytes:
    """Return the content of a file for ``torch.export.load``."""
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.export.save(_traced(request), file, extra_files=_metadata(request))
    return file.getvalue()


def pt2_difference(request: ExportRequest, path: Path) -> float:
    """Return the ``largest_difference`` of a program."""
    return _difference(request, torch.export.load(path).module())


def onnx(request: ExportRequest) -> bytes:
    """Return the content of an ONNX file with inputs x and key_padding_mask, and output y."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise ExportError(
            f"ONNX needs {', '.join(missing)}; expected `{install_command('export')}` before it."
        )
    # ONNX's translation of fused attention is wrong for queries without visible keys.
    program = _traced(request, fuse=False)
    try:
        with warnings.catch_warnings(action="ignore"):
            exported: Any = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=_OPSET,
                verbose=False,
                input_names=["x", "key_padding_mask"],
                output_names=["y"],
            )
    except Exception as error:  # torch raises many types
        operation = re.search(r"op='([\w.]+)'", str(error))
        name = operation[1] if operation else first_line(error.__cause__ or error)
        raise ExportError(
            f"ONNX has no operation for {name}, which the mechanism uses; expected a .pt2 or .py "
            "file."
        ) from error
    model = exported.model_proto
    for name, value in _metadata(request).items():
        model.metadata_props.add(key=name, value=value)
    content: bytes = model.SerializeToString()
    return content


def onnx_difference(request: ExportRequest, path: Path) -> float:
    """Return the ``largest_difference`` of an ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(x: Tensor, padding: Tensor) -> Tensor:
        inputs = {"x": x.numpy(), "key_padding_mask": padding.numpy()}
        return torch.from_numpy(session.run(None, inputs)[0])

    return _difference(request, run)


def _difference(request: ExportRequest, graph: Any) -> float:
    block = request.block().double()
    return largest_difference(
        request.dim,
        lambda x, _, padding: graph(x, padding),
        lambda x, _, padding: block(x, None, padding, request.is_causal),
    )


def _metadata(request: ExportRequest) -> dict[str, str]:
    genome = request.plan.genome
    return {
        "genome": genome.to_json(),
        "digest": digest(genome),
        "origin": "\n".join(request.origin),
        "is_causal": str(request.is_causal),
    }


EXPORTS.register("pt2")(ExportFormat(pt2, pt2_difference, is_graph=True))
EXPORTS.register("onnx")(ExportFormat(onnx, onnx_difference, is_graph=True))
