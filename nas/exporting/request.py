"""Requests of exports: a mechanism at given sizes, its origin, and its weights.

A search may save the trained weights of a mechanism. Without saved weights, a request has initial
weights drawn from the seed ``SEED``, which are the same in every format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from nas.common.errors import ExportError
from nas.compiler import Plan, build_attention, make_plan, write
from nas.compiler.inlining import file_source
from nas.genome import Genome
from nas.tasks import ModelTask

SEED: Final = 0
MASKS: Final = ("attn_mask", "key_padding_mask")
SOURCE_NAME: Final = "<the mechanism>"  # the file name in tracebacks through generated source
State: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True)
class Provenance:
    """The origin of a mechanism, which every exported file states.

    Attributes:
        source: the name, file or run from which the mechanism was read, as the user wrote it.
        run: name, search space, task and seed of the search that found it; None without a search.
        results: one line about the trainings of the mechanism, and one line for each objective. A
            line of an objective states the value, its standard error, and whether the value is
            measured, estimated, counted or predicted.
    """

    source: str
    run: str | None = None
    results: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return lines that state the origin, with "?" for characters unsafe in a docstring."""
        run = [f"Run: {self.run}"] if self.run else []
        lines = [f"Source: {self.source}", *run, *(f"  {result}" for result in self.results)]
        return ["".join(c if c.isprintable() and c not in '\\"' else "?" for c in s) for s in lines]


@dataclass(frozen=True)
class ExportRequest:
    """A mechanism with the sizes, options and weights of its export.

    Attributes:
        dim, heads: width and number of heads; Python files use these numbers as defaults.
        is_fast: whether to write the source that training uses instead of readable torch.
        is_causal: whether later tokens are hidden. Only formats without an argument ``is_causal``
            use this option.
        masks: names of the masks that a graph takes beside its tokens, a subset of ``MASKS``.
        layer: the layer whose weights are written by formats that contain only one layer's
            attention; None for the first layer with the mechanism.
        weights: trained weights of every attention layer, by layer index; empty for a mechanism
            without saved weights.
        task: the task of the search, which determines the model sizes of the ``hf`` format; None
            for default sizes.

    Raises:
        ExportError: ``layer`` does not contain the mechanism, ``is_causal`` is set but the
            mechanism cannot be causal, or the weights do not fit the mechanism.
    """

    genome: Genome
    dim: int
    heads: int
    provenance: Provenance
    qkv_bias: bool = False
    is_fast: bool = False
    is_causal: bool = False
    masks: tuple[str, ...] = ("key_padding_mask",)
    layer: int | None = None
    weights: Mapping[int, State] = field(default_factory=dict)
    task: ModelTask | None = None

    def __post_init__(self) -> None:
        if self.written_layer not in self.mechanism_layers:
            raise ExportError(
                f"layer {self.written_layer} does not hold the mechanism; expected one of "
                f"{', '.join(map(str, self.mechanism_layers))}."
            )
        if self.is_causal and self.plan.unsafe:
            steps = (s for s in self.plan.steps if s.primitive.name in self.plan.unsafe)
            nodes = ", ".join(f"node {step.index} ({step.primitive.name})" for step in steps)
            raise ExportError(
                f"{nodes} sees later tokens, so the mechanism cannot be causal; expected "
                "--no-causal."
            )
        for layer in range(self.depth) if self.weights else ():
            self._check_weights(layer)

    @cached_property
    def plan(self) -> Plan:
        """Return the plan of the mechanism, which is its list of primitive calls."""
        return make_plan(self.genome)

    @property
    def depth(self) -> int:
        """Return the number of layers of the task's model, or of two layers and a whole pattern."""
        placement = self.genome.placement
        span = placement.every or placement.offset + placement.count
        return self.task.depth if self.task else max(2, span)

    @property
    def mechanism_layers(self) -> tuple[int, ...]:
        """Return the indices of the model's layers that contain the mechanism."""
        return self.genome.placement.layers(self.depth)

    @property
    def written_layer(self) -> int:
        """Return the layer whose weights are written, by default the first with the mechanism."""
        return self.mechanism_layers[0] if self.layer is None else self.layer

    def genome_of(self, layer: int) -> Genome:
        """Return the genome of a layer's attention, also of a layer without the mechanism."""
        return self.genome if layer in self.mechanism_layers else self.genome.rest()

    def state(self, layer: int) -> State:
        """Return the state dict of a layer's attention: trained weights, else initial weights."""
        return self.weights.get(layer) or self._initial_block(layer).state_dict()

    def block(self, *, fuse: bool = True) -> nn.Module:
        """Return an attention module of the readable class, with the weights of ``written_layer``.

        The module is in float32 and in eval mode.

        Args:
            fuse: whether faster functions may be called; see ``nas.compiler.build_attention``.
        """
        block = self._initial_block(self.written_layer, fuse=fuse)
        block.load_state_dict(dict(self.state(self.written_layer)))
        return block.eval()

    def reference(self, layer: int) -> nn.Module:
        """Return the reference interpreter of a layer's attention in float64, with its weights."""
        block = self._interpreter(layer)
        block.load_state_dict(dict(self.state(layer)))
        return block.double().eval()

    def _interpreter(self, layer: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            return build_attention(
                self.genome_of(layer), self.dim, self.heads, qkv_bias=self.qkv_bias, reference=True
            )

    def _initial_block(self, layer: int, *, fuse: bool = True) -> nn.Module:
        self._interpreter(layer)  # raises where the mechanism does not exist at these sizes
        with torch.random.fork_rng(devices=[]):
            scope: dict[str, Any] = {"__name__": "written"}
            text = source_text(self, make_plan(self.genome_of(layer)), fuse)
            exec(compile(text, SOURCE_NAME, "exec"), scope)  # noqa: S102 - generated by nas.compiler
            torch.default_generator.manual_seed(SEED + layer)
            block: nn.Module = scope["Attention"]()
        return block

    def _check_weights(self, layer: int) -> None:
        weights = self.weights.get(layer, {})
        place = f"the trained weights do not fit the mechanism: layer {layer}"
        block = self._interpreter(layer)
        expected = block.state_dict()
        for name in weights.keys() & expected.keys():
            found, dtype = weights[name].dtype, expected[name].dtype
            if found != dtype:  # load_state_dict would convert it
                raise ExportError(f"{place}, {name!r}: found {found}; expected {dtype}.")
        try:
            block.load_state_dict(dict(weights))
        except RuntimeError as error:  # names each missing, unknown or misshapen tensor
            raise ExportError(f"{place}: {' '.join(str(error).split())}") from None
        for name, tensor in weights.items():
            if not bool(tensor.isfinite().all()):
                raise ExportError(f"{place}, {name!r}: found NaN or infinity.")


def source_text(request: ExportRequest, plan: Plan, fuse: bool = True) -> str:
    """Return the text of a Python file with a plan's class in readable torch."""
    sizes = plan, request.dim, request.heads
    return file_source(write(*sizes, qkv_bias=request.qkv_bias, is_fast=False, fuse=fuse).alone())
