"""What is exported: a mechanism at sizes, where it comes from, and which weights it gets.

Weights are those that a run keeps, else a fresh start drawn from ``SEED``, the same in each format.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from nas.common.errors import ExportError
from nas.compiler import build_attention, make_plan, write
from nas.compiler.inlining import file_source
from nas.genome import Genome, layers_with_mechanism
from nas.genome.mechanisms import mechanism

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nas.compiler import Plan
    from nas.tasks import ModelTask

SEED: Final = 0
MASKS: Final = ("attn_mask", "key_padding_mask")
WRITTEN: Final = "<the mechanism>"  # the file that tracebacks through its class name
State: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True)
class Origin:
    """What the file says about where the mechanism comes from."""

    source: str
    run: str | None = None
    results: str | None = None


@dataclass(frozen=True)
class Subject:
    """A mechanism on its way to a file.

    Attributes:
        is_fast: the form that trains, in place of the one to read.
        is_causal: each token sees itself and earlier ones alone; where a format fixes that.
        masks: which masks a graph takes beside its tokens, of ``MASKS``.
        layer: whose weights, where a format holds one block.
        kept: by layer, what a run keeps of a training; empty where nothing is kept.
        task: of the run; its model is what a format of whole models writes.
    """

    genome: Genome
    dim: int
    heads: int
    origin: Origin
    qkv_bias: bool = False
    is_fast: bool = False
    is_causal: bool = False
    masks: tuple[str, ...] = ("key_padding_mask",)
    layer: int = 0
    kept: Mapping[int, State] = field(default_factory=dict)
    task: ModelTask | None = None

    def __post_init__(self) -> None:
        if self.layer not in self.own_layers:
            raise ExportError(
                f"layer {self.layer} does not hold the mechanism; expected one of "
                f"{', '.join(map(str, self.own_layers))}."
            )
        plan = make_plan(self.genome)
        if self.is_causal and plan.unsafe:
            named = (step for step in plan.steps if step.primitive.name in plan.unsafe)
            nodes = ", ".join(f"node {step.index} ({step.primitive.name})" for step in named)
            raise ExportError(
                f"{nodes} sees later tokens, so the mechanism cannot be causal; expected "
                "--no-causal."
            )

    @property
    def own_layers(self) -> tuple[int, ...]:
        """The layers of a whole model that hold the mechanism; the others hold ``mha``."""
        return layers_with_mechanism(self.genome.placement, self.depth)

    @property
    def depth(self) -> int:
        """Layers of a whole model."""
        return self.task.depth if self.task else 2

    def genome_of(self, layer: int) -> Genome:
        """What a layer of a whole model holds."""
        return self.genome if layer in self.own_layers else mechanism("mha").genome

    def state(self, layer: int) -> State:
        """The weights of a layer's block."""
        if layer in self.kept:
            return self.kept[layer]
        return drawn(self.genome_of(layer), self, layer).state_dict()

    def block(self, *, fuse: bool | Collection[str] = True) -> nn.Module:
        """The plain class in 32 bits with the weights of ``layer``, not training.

        Raises:
            ExportError: kept weights are not those of this mechanism.
        """
        block = drawn(self.genome, self, self.layer, fuse=fuse)
        try:
            block.load_state_dict(dict(self.state(self.layer)))
        except RuntimeError as error:
            raise ExportError(f"the weights that were kept do not fit ({error}).") from None
        return block.eval()

    def reference(self, layer: int) -> nn.Module:
        """The interpreter of the graph in 64 bits, with the weights of a layer."""
        with torch.random.fork_rng(devices=[]):
            block = build_attention(
                self.genome_of(layer), self.dim, self.heads, qkv_bias=self.qkv_bias, reference=True
            )
        block.load_state_dict(dict(self.state(layer)))
        return block.double().eval()


def source_text(plan: Plan, subject: Subject, fuse: bool | Collection[str] = True) -> str:
    """The file of the plain class that ``drawn`` makes; tracebacks count its lines."""
    given = plan, subject.dim, subject.heads
    written = write(*given, qkv_bias=subject.qkv_bias, is_fast=False, fuse=fuse)
    return file_source(written.alone())


def drawn(
    genome: Genome, subject: Subject, layer: int, *, fuse: bool | Collection[str] = True
) -> nn.Module:
    """The plain class of a genome at a subject's sizes, with a fresh start of this layer.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
    """
    plan, dim, heads = make_plan(genome), subject.dim, subject.heads
    with torch.random.fork_rng(devices=[]):
        build_attention(plan, dim, heads, reference=True)  # says what is wrong with the sizes
        scope: dict[str, Any] = {"__name__": "written"}
        text = compile(source_text(plan, subject, fuse), WRITTEN, "exec")
        exec(text, scope)  # noqa: S102 - our own text, see nas.compiler.source
        torch.manual_seed(SEED + layer)
        made: nn.Module = scope["Attention"]()
    return made
