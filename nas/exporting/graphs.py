"""Write a mechanism as a graph for any batch and number of tokens: torch.export's, and ONNX.

    y = program(x, *masks)        x, y (batch, tokens, dim); masks as the class of ``py`` takes them

What a call may choose in Python is fixed here: which masks there are, and causality. Attention
under softmax is written out for ONNX: its translation of torch's fused call gives other numbers in
rows that see nothing, where a mechanism gives zeros.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from nas.common.errors import ExportError
from nas.compiler import make_plan
from nas.compiler.lowering import RULES
from nas.exporting.formats import EXPORTS, ExportFormat
from nas.exporting.recording import Recording, block_inputs, record_block
from nas.exporting.subject import MASKS, WRITTEN, Subject, source_text
from nas.genome.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

OPSET: Final = 20  # 23's own Attention is young in onnxruntime
_SIZES: Final = (2, 7)  # batch and tokens of tracing; 0 and 1 would be taken for constants
_FUSED: Final = "dot_product"  # the rule that makes softmax attention torch's own call


class _Graph(nn.Module):
    """A block as a function of its tokens and masks, by place."""

    def __init__(self, block: nn.Module, masks: tuple[str, ...], is_causal: bool) -> None:
        super().__init__()
        self.block, self.masks, self.is_causal = block, masks, is_causal

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        given = dict(zip(self.masks, masks, strict=True))
        found: Tensor = self.block(x, **given, is_causal=self.is_causal)
        return found


def traced(subject: Subject, *, fuse: bool | Collection[str] = True) -> ExportedProgram:
    """The mechanism as a program of torch.export, whose batch and tokens are free.

    Raises:
        ExportError: it cannot be traced so; names the node.
    """
    masks = tuple(name for name in MASKS if name in subject.masks)
    graph = _Graph(subject.block(fuse=fuse), masks, subject.is_causal).eval()
    batch, tokens = Dim("batch"), Dim("tokens")
    shapes = {
        "x": {0: batch, 1: tokens},
        "attn_mask": {0: batch, 2: tokens, 3: tokens},
        "key_padding_mask": {0: batch, 1: tokens},
    }
    inputs = block_inputs(*_SIZES, subject.dim, masks)
    free = (shapes["x"], *([tuple(shapes[name] for name in masks)] if masks else []))
    try:
        with _quiet():
            return torch.export.export(
                graph, tuple(inputs.values()), dynamic_shapes=free, strict=False
            )
    except Exception as error:  # torch raises what it likes
        text = "".join(traceback.format_exception(error))
        raise refusal(subject, "torch.export cannot trace", text, error, fuse) from error


def pt2(subject: Subject) -> bytes:
    """The file that ``torch.export.load`` reads; what it was made from lies beside the graph.

    Raises:
        ExportError: the mechanism cannot be traced.
    """
    file = io.BytesIO()
    with _quiet():
        torch.export.save(traced(subject), file, extra_files=_about(subject))
    return file.getvalue()


def onnx(subject: Subject) -> bytes:
    """The file that onnxruntime reads, with inputs ``x`` and the masks by name, and output ``y``.

    Raises:
        ExportError: the mechanism cannot be traced, or ONNX has no operation for a part of it.
    """
    fuse = [rule for rule in RULES if rule != _FUSED]
    program = traced(subject, fuse=fuse)
    names = ["x", *(name for name in MASKS if name in subject.masks)]
    try:
        with _quiet():
            found: Any = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
                input_names=names,
                output_names=["y"],
            )
    except Exception as error:  # likewise
        text = str(error) + _stack_of(program, error)
        raise refusal(subject, "ONNX has no operation for", text, error, fuse) from error
    proto = found.model_proto
    for name, value in _about(subject).items():
        proto.metadata_props.add(key=name, value=value)
    importlib.import_module("onnx").checker.check_model(proto)
    content: bytes = proto.SerializeToString()
    return content


def refusal(
    subject: Subject, words: str, text: str, error: Exception, fuse: bool | Collection[str]
) -> ExportError:
    """The error for a mechanism that a tool does not take.

    Args:
        text: holds the tool's stack, which names lines of the mechanism's own source.
        fuse: as that source was written.
    """
    cause = error.__cause__ or error  # where there is one, it says what the other one has for all
    lines = str(cause).strip().splitlines() or ["no message"]
    reason = f"{type(cause).__name__}: {lines[0][:200].rstrip('.')}"
    return ExportError(f"{words} {_node(subject, text, fuse)} ({reason}).")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings and remarks that say nothing of the mechanism."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _node(subject: Subject, text: str, fuse: bool | Collection[str]) -> str:
    """The node whose line is the last of the mechanism's ``forward`` in a stack."""
    plan = make_plan(subject.genome)
    source = source_text(plan, subject, fuse).splitlines()
    for number in reversed(re.findall(rf'File "{WRITTEN}", line (\d+), in forward', text)):
        for step in plan.steps:
            if re.search(rf"\b({step.variable}|self\.{step.module})\b", source[int(number) - 1]):
                return f"node {step.index} ({step.primitive.name})"
    return "the mechanism"


def _stack_of(program: ExportedProgram, error: Exception) -> str:
    """Where the operations come from that a message names."""
    names = re.findall(r"torch\.ops\.\w+\.(\w+)", f"{error} {error.__cause__}")
    found = [
        str(node.meta.get("stack_trace", ""))
        for node in program.graph.nodes
        if node.op == "call_function" and any(name in str(node.target) for name in names)
    ]
    return "\n".join(found)


def _about(subject: Subject) -> dict[str, str]:
    genome = make_plan(subject.genome).genome
    return {
        "genome": genome.to_json(),
        "digest": digest(genome),
        "source": subject.origin.source,
        "is_causal": str(subject.is_causal),
    }


def recording(subject: Subject) -> Recording:
    """The block's own weights under the masks that the graph takes."""
    return record_block(subject, subject.masks, (None,), own=True)


def own_recording(subject: Subject) -> Recording:
    """Those cases that need no other weights: in ONNX they are constants."""
    found = recording(subject)
    return Recording(tuple(case for case in found.cases if not case.is_loaded))


EXPORTS.register("pt2")(
    ExportFormat(
        ".pt2",
        pt2,
        takes=("is_causal", "masks"),
        has_weights=True,
        loader="pt2",
        recording=recording,
    )
)
EXPORTS.register("onnx")(
    ExportFormat(
        ".onnx",
        onnx,
        takes=("is_causal", "masks"),
        needs=("onnx", "onnxscript", "onnxruntime"),
        has_weights=True,
        loader="onnx",
        recording=own_recording,
    )
)
