"""Formats ``pt2`` and ``onnx``: graphs for any batch size and any number of tokens.

    y = program(x, *masks)

x and y have the shape (batch, tokens, dim). ``ExportRequest`` states which masks a graph takes, and
whether its attention is causal. An ONNX graph computes attention from elementary operations,
because the ONNX translation of torch's fused attention gives wrong numbers for queries without
visible keys.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from nas.common.errors import ExportError
from nas.exporting.checking import ExpectedOutputs, block_inputs, block_outputs
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.request import MASKS, SOURCE_NAME, ExportRequest, source_text
from nas.genome.canonical import digest

OPSET: Final = 20  # opset 23's Attention is too recent in onnxruntime
_SIZES: Final = (2, 7)  # batch and tokens of tracing; torch specialises on 0 and 1


class _Graph(nn.Module):
    """An attention module with positional masks instead of named ones, as a graph takes them."""

    def __init__(self, block: nn.Module, masks: tuple[str, ...], is_causal: bool) -> None:
        super().__init__()
        self.block, self.masks, self.is_causal = block, masks, is_causal

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        named = dict(zip(self.masks, masks, strict=True))
        out: Tensor = self.block(x, **named, is_causal=self.is_causal)
        return out


def traced(request: ExportRequest, *, fuse: bool = True) -> ExportedProgram:
    """Return the mechanism's graph from torch.export, for any batch size and number of tokens.

    Args:
        fuse: whether faster functions may be called; see ``nas.compiler.build_attention``.

    Raises:
        ExportError: torch.export cannot trace the mechanism; the message names the genome's node.
    """
    masks = tuple(name for name in MASKS if name in request.masks)
    graph = _Graph(request.block(fuse=fuse), masks, request.is_causal).eval()
    batch, tokens = Dim("batch"), Dim("tokens")
    shapes = {
        "attn_mask": {0: batch, 2: tokens, 3: tokens},
        "key_padding_mask": {0: batch, 1: tokens},
    }
    inputs = tuple(block_inputs(*_SIZES, request.dim, masks).values())
    dynamic: tuple[Any, ...] = ({0: batch, 1: tokens},)
    if masks:
        dynamic += (tuple(shapes[name] for name in masks),)
    try:
        with _without_warnings():
            return torch.export.export(graph, inputs, dynamic_shapes=dynamic, strict=False)
    except Exception as error:  # torch raises many types
        stack = "".join(traceback.format_exception(error))
        raise _refusal(request, "torch.export cannot trace", stack, error, fuse) from error


def pt2(request: ExportRequest) -> bytes:
    """Return the content of a file for ``torch.export.load``.

    The file also contains the genome, its digest, the name under which the user gave it, and
    whether it is causal.

    Raises:
        ExportError: torch.export cannot trace the mechanism.
    """
    file = io.BytesIO()
    with _without_warnings():
        torch.export.save(traced(request), file, extra_files=_metadata(request))
    return file.getvalue()


def onnx(request: ExportRequest) -> bytes:
    """Return the content of an ONNX file with the inputs ``x`` and masks, and the output ``y``.

    Raises:
        ExportError: torch.export cannot trace the mechanism, or ONNX has no operation for a node.
    """
    program = traced(request, fuse=False)
    try:
        with _without_warnings():
            exported: Any = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
                input_names=["x", *(name for name in MASKS if name in request.masks)],
                output_names=["y"],
            )
    except Exception as error:  # torch raises many types
        stack = str(error) + _stack_of(program, error)
        raise _refusal(request, "ONNX has no operation for", stack, error, False) from error
    model = exported.model_proto
    for name, value in _metadata(request).items():
        model.metadata_props.add(key=name, value=value)
    importlib.import_module("onnx").checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


@contextmanager
def _without_warnings() -> Iterator[None]:
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _refusal(
    request: ExportRequest, reason: str, stack: str, error: Exception, fuse: bool
) -> ExportError:
    """Return an error that names the node of the genome at which an export failed.

    Args:
        reason: the beginning of the message.
        stack: stack traces of the failure; the last line of generated source determines the node.
    """
    cause = error.__cause__ or error  # the outer exception is the same for all failures
    lines = str(cause).strip().splitlines() or ["no message"]
    node, source = "the mechanism", source_text(request, request.plan, fuse).splitlines()
    for number in re.findall(rf'File "{SOURCE_NAME}", line (\d+), in forward', stack):
        for step in request.plan.steps:
            if re.search(rf"\b({step.variable}|self\.{step.module})\b", source[int(number) - 1]):
                node = f"node {step.index} ({step.primitive.name})"
    return ExportError(f"{reason} {node} ({type(cause).__name__}: {lines[0][:200].rstrip('.')}).")


def _stack_of(program: ExportedProgram, error: Exception) -> str:
    """Return the stack traces of a program's operations that an error message names."""
    # Decomposed operations are private variants, such as _linalg_solve_ex of linalg_solve.
    named = re.findall(r"torch\.ops\.\w+\._?(\w+)", f"{error} {error.__cause__}")
    names = [name.removesuffix("_ex") for name in named]
    return "\n".join(
        str(node.meta.get("stack_trace", ""))
        for node in program.graph.nodes
        if node.op == "call_function" and any(name in str(node.target) for name in names)
    )


def _metadata(request: ExportRequest) -> dict[str, str]:
    genome = request.plan.genome
    return {
        "genome": genome.to_json(),
        "digest": digest(genome),
        "source": request.provenance.source,
        "is_causal": str(request.is_causal),
    }


def pt2_outputs(request: ExportRequest) -> ExpectedOutputs:
    """Return calls that check a graph, with its masks and the outputs that it must give."""
    return block_outputs(request, request.masks, (None,), with_file_weights=True)


def onnx_outputs(request: ExportRequest) -> ExpectedOutputs:
    """Return calls that check an ONNX graph, without calls that load other weights.

    Weights are constants in ONNX and cannot be replaced.
    """
    expected = pt2_outputs(request)
    return ExpectedOutputs(tuple(case for case in expected.cases if not case.is_loaded))


EXPORTS.register("pt2")(
    ExportFormat(
        ".pt2",
        pt2,
        options=("is_causal", "masks"),
        has_weights=True,
        loader="pt2",
        expected=pt2_outputs,
    )
)
EXPORTS.register("onnx")(
    ExportFormat(
        ".onnx",
        onnx,
        options=("is_causal", "masks"),
        packages=("onnx", "onnxscript", "onnxruntime"),
        has_weights=True,
        loader="onnx",
        expected=onnx_outputs,
    )
)
