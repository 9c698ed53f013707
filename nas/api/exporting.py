"""``nas.export``: write a mechanism as a file that does not need nas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nas.api.execution import warn_of_reference
from nas.common.arguments import public
from nas.common.errors import ExportError
from nas.common.text import plural
from nas.exporting import EXPORTS, ExportRequest, export_file, weights_file
from nas.genome import Genome
from nas.report.costs import Sizes, sizes_of
from nas.report.result import Result
from nas.report.units import quantity
from nas.store import find_candidate, open_run
from nas.store.files import write_file
from nas.store.sources import Source, resolve
from nas.store.weights import read_weights, weights_path
from nas.tasks import ModelTask

if TYPE_CHECKING:
    from torch import Tensor

MAX_DIM: Final = 4096


@dataclass(frozen=True)
class ExportResult(Result):
    """A written export.

    Attributes:
        difference: see ``nas.exporting.formats.largest_difference``; None if not compared.
        layer: index of the layer whose trained weights are written; None for initial weights.
        weights: the file of trained weights beside ``path``, if there is one.
    """

    path: Path
    dim: int
    heads: int
    difference: float | None = None
    layer: int | None = None
    weights: Path | None = None


@public
def export(
    source: str | Path | Genome,
    path: str | Path,
    *,
    dim: int | None = None,
    heads: int | None = None,
    fast: bool = False,
    weights: bool = False,
    layer: int | None = None,
    causal: bool | None = None,
) -> ExportResult:
    """Write a mechanism as a file that does not need nas, in the format of the file's suffix.

    ``.py`` is a readable file that needs torch only, whose class takes any sizes. ``.pt2`` is a
    program of torch.export and ``.onnx`` an ONNX graph, functions of the tokens and a padding mask.
    Before the file is written, its outputs are compared with those of the compiled block.

    Examples:
        >>> result = nas.export("mha", "mha.py", dim=32, heads=2)
        >>> nas.load_genome(result.path) == nas.load_genome("mha")
        True

    Args:
        source, path, dim, heads: the file's path; for others see ``nas.api.execution``.
        fast: in ``.py``, whether to write the form that trains fastest, not the most readable.
        weights: whether to write the weights that a run has trained: into the file, or for ``.py``
            into a safetensors file beside it. Otherwise weights are initial.
        layer: index of the backbone layer whose weights are written; by default the first with the
            mechanism.
        causal: whether to hide later tokens in ``.pt2`` and ``.onnx``, and in ``.py`` whether the
            class has a method ``decode``; by default as in the task.

    Raises:
        ExportError: an option cannot be used, a package is missing, the mechanism cannot be written
            in this format, or the outputs differ.
        RunError: the run has no such weights, or their file has other tensors.
    """
    path = Path(path)
    export_format = EXPORTS[path.suffix.removeprefix(".")]
    if fast and export_format.is_graph:
        raise ExportError(f"--fast is not for {path.suffix} files; expected .py.")
    if fast and causal:
        raise ExportError("--causal: a file of --fast has no method decode; expected one of both.")
    if layer is not None and not weights:
        raise ExportError("--layer selects trained weights; expected --weights, too.")
    resolved = resolve(source)
    warn_of_reference(resolved)
    task = resolved.task()
    model = task.main if task else None
    sizes = sizes_of([resolved], dim=dim, heads=heads)
    if sizes.dim > MAX_DIM:
        raise ExportError(
            f"dim: found {sizes.dim}; expected at most {MAX_DIM}, at which an export is still "
            "compared with the mechanism. The class in an exported file takes any."
        )
    trained = None
    if weights:
        layer, trained = _trained(resolved, model, sizes, layer)
    request = ExportRequest(
        *(resolved.genome, sizes.dim, sizes.heads, tuple(_origin(resolved))),
        qkv_bias=sizes.qkv_bias,
        is_fast=fast,
        is_causal=bool(model and model.is_causal) if causal is None else causal,
        weights=trained,
    )
    difference = export_file(request, path)
    beside = None
    if layer is not None and trained is not None and not export_format.is_graph:
        beside = path.with_suffix(".safetensors")
        write_file(beside, weights_file(resolved.genome, layer, trained))
    return ExportResult(path, sizes.dim, sizes.heads, difference, layer, beside)


def _trained(
    source: Source, model: ModelTask | None, sizes: Sizes, layer: int | None
) -> tuple[int, dict[str, Tensor]]:
    candidate = None
    if source.run is not None:
        with open_run(source.run) as run:
            candidate = find_candidate(run, source.digest or "")
    if model is None or source.run is None or candidate is None:
        raise ExportError(
            f"{source.text}: has no trained weights; expected a member of a run, such as "
            "latest/best."
        )
    if (sizes.dim, sizes.heads) != (model.width, model.heads):
        raise ExportError(
            f"{source.text}: the weights were trained at dim {model.width} and heads "
            f"{model.heads}, not {sizes.dim} and {sizes.heads}; leave dim and heads out."
        )
    layers = source.genome.placement.layers(model.depth)
    layer = layers[0] if layer is None else layer
    if layer not in layers:
        raise ExportError(
            f"layer {layer} does not hold the mechanism; expected one of "
            f"{', '.join(map(str, layers))}."
        )
    path = weights_path(source.run, candidate.key)
    return layer, read_weights(path, source.genome, model)[layer]


def _origin(source: Source) -> Iterator[str]:
    yield f"Source: {source.text}"
    if source.run is None:
        return
    with open_run(source.run) as run:
        setup, candidate = run.setup, find_candidate(run, source.digest or "")
        task, date = setup.front_task.name, run.sessions()[0].started.date()
        yield f"Run: {run.name} (space {setup.space.name}, task {task}, seed {setup.config.seed})"
    if candidate is None:
        return
    seeds = ", ".join(str(training.evaluation.seed) for training in candidate.scored)
    trainings = plural(len(candidate.scored), "training")
    yield f"  {trainings} (seeds {seeds}) of task {task}, run started {date}:"
    for objective in setup.objectives:
        name, unit = objective.name, objective.unit
        value = quantity(candidate.objectives[name], unit, candidate.errors.get(name))
        if not objective.is_metric:
            kind = "predicted" if unit == "ms" else "counted"
        elif candidate.p is None:
            kind = "measured mean"
        else:
            mean = quantity(candidate.scores[name], unit)
            kind = f"estimate from all trainings of the run; measured mean {mean}"
        yield f"  {name} {value} ({kind})"
