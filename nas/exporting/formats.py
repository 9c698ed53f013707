"""Export formats by the suffix of their files, and their comparison with the compiled block.

Another package adds a format under the entry point group ``nas.exports``:

    @EXPORTS.register("dot")
    @ExportFormat
    def write(request: ExportRequest) -> str | bytes: ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import Tensor, nn

from nas.common.errors import ExportError
from nas.common.registry import Registry
from nas.common.text import first_line
from nas.compiler import Plan, build_attention, make_plan
from nas.genome import Genome
from nas.store.files import write_file

TOLERANCE: Final = 1e-5
_SIZES: Final = ((3, 11), (1, 29))  # (batch, tokens); graphs are traced with other sizes


@dataclass(frozen=True)
class ExportRequest:
    """A mechanism with the sizes, options and weights of its export.

    ``origin`` are lines that state where the mechanism was found, and how it was measured. If
    ``is_fast``, a Python file contains the classes that training uses, which are longer. If
    ``is_causal``, a graph hides later tokens, and the class of another Python file decodes.
    ``weights`` is a state dict of the block; None for initial weights.

    Raises:
        ExportError: the mechanism sees later tokens, and ``is_causal`` is set.
    """

    genome: Genome
    dim: int
    heads: int
    origin: tuple[str, ...] = ()
    qkv_bias: bool = False
    is_fast: bool = False
    is_causal: bool = False
    weights: Mapping[str, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.is_causal and self.plan.unsafe:
            raise ExportError(
                f"{', '.join(self.plan.unsafe)} sees later tokens, so the mechanism cannot be "
                "causal; expected --no-causal."
            )

    @cached_property
    def plan(self) -> Plan:
        """See ``nas.compiler.Plan``."""
        return make_plan(self.genome)

    def block(self) -> nn.Module:
        """Return the compiled block in eval mode; initial weights are drawn from the seed 0."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # not the generators of GPUs
            block = build_attention(self.plan, self.dim, self.heads, qkv_bias=self.qkv_bias)
        if self.weights is not None:
            block.load_state_dict(dict(self.weights))
        return block.eval()


@dataclass(frozen=True)
class ExportFormat:
    """A format in which a mechanism can be exported.

    ``content`` returns the content of the file, and ``difference`` the ``largest_difference`` of a
    written file's outputs; None for a file without outputs. A file that ``is_graph`` contains
    weights, and always or never hides later tokens.
    """

    content: Callable[[ExportRequest], str | bytes]
    difference: Callable[[ExportRequest, Path], float] | None = None
    is_graph: bool = False


EXPORTS: Final[Registry[ExportFormat]] = Registry(
    "export format", "nas.exports", modules=("nas.exporting.python_file", "nas.exporting.graphs")
)


def export_file(request: ExportRequest, path: Path) -> float | None:
    """Write a mechanism as a file, and return the largest difference of outputs, if it has outputs.

    Raises:
        ConfigError: no format has the path's suffix.
        ExportError: the mechanism cannot be written in the format, or the outputs differ by more
            than ``TOLERANCE``. No file is written.
    """
    export_format, difference = EXPORTS[path.suffix.removeprefix(".")], None
    content = export_format.content(request)
    data = content.encode() if isinstance(content, str) else content
    if export_format.difference is not None:
        with TemporaryDirectory(prefix="nas-export-") as folder:
            draft = Path(folder) / f"draft{path.suffix}"
            draft.write_bytes(data)
            difference = export_format.difference(request, draft)
        if not difference <= TOLERANCE:
            raise ExportError(
                f"{path}: the export differs from the mechanism by {difference:.1e} of its "
                f"outputs; expected at most {TOLERANCE:.0e}. Nothing is written."
            )
    write_file(path, data)
    return difference


def add_noise(block: nn.Module) -> None:
    """Add noise to all weights in place, since a term with a zero weight could be wrong unseen."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))


def random_inputs(batch: int, tokens: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random tokens, attention mask and padding mask; the second sequence is all padding."""
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(batch, tokens, dim, generator=generator)
    attn_mask = torch.rand(batch, 1, tokens, tokens, generator=generator) < 0.7
    padding = torch.zeros(batch, tokens, dtype=torch.bool)
    padding[0, tokens - tokens // 3 :] = True
    padding[1:2] = True
    return x, attn_mask, padding


@contextmanager
def computing() -> Iterator[None]:
    """Raise ExportError if a primitive raises in the context, for example at a length."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ExportError(f"the mechanism cannot be computed ({reason}).") from error


def largest_difference(
    dim: int, exported: Callable[..., Tensor], expected: Callable[..., Tensor]
) -> float:
    """Return the largest max |y - y'| / max(1, max |y'|) of outputs for random inputs and masks.

    ``exported`` and ``expected`` are functions of tokens, attention mask and padding mask, in
    float32 and in float64.

    Raises:
        ExportError: the expected outputs are not finite.
    """
    worst = 0.0
    for batch, tokens in _SIZES:
        x, *masks = random_inputs(batch, tokens, dim)
        with torch.no_grad(), computing():
            found, right = exported(x, *masks).double(), expected(x.double(), *masks)
        if not bool(right.isfinite().all()):
            raise ExportError("the mechanism's outputs are not finite, so nothing is compared.")
        if found.shape != right.shape:
            return math.inf
        gap = (found - right).abs().nan_to_num(nan=math.inf).max()
        worst = max(worst, float(gap) / max(1.0, float(right.abs().max())))
    return worst
