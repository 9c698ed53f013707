"""Export: a mechanism as a file or folder, compared with the interpreter first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nas.common.errors import ExportError
from nas.compiler import make_plan
from nas.exporting import (
    EXPORTS,
    MASKS,
    OPTIONS,
    ExportRequest,
    Provenance,
    check_target,
    read_weights,
    save_weights,
    write_export,
)
from nas.genome import Genome
from nas.report.result import Result
from nas.report.units import quantity
from nas.store import find_candidate, open_run, weights_path
from nas.store.sources import Source, resolve
from nas.tasks import ModelTask

MAX_DIM: Final = 4096


@dataclass(frozen=True)
class ExportResult(Result):
    """A written export.

    Attributes:
        path: the file or folder.
        dim: model width.
        heads: heads of the backbone.
        weights: a file of trained weights beside it; None if none was written.
        remarks: sentences on the effects of the head count on the mechanism.
        is_trained: whether the file contains trained weights; None if it contains no weights.
        difference: largest deviation from the interpreter in a clean process, relative to the
            largest output, or absolute where that is below 1; None if nothing was compared.
    """

    path: Path
    dim: int
    heads: int
    weights: Path | None = None
    remarks: tuple[str, ...] = ()
    is_trained: bool | None = None
    difference: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data; paths as text."""
        weights = None if self.weights is None else str(self.weights)
        return super().to_dict() | {"path": str(self.path), "weights": weights}


def export(
    source: str | Path | Genome,
    path: str | Path,
    *,
    format: str = "py",  # noqa: A002 - name of the option
    dim: int | None = None,
    heads: int | None = None,
    fast: bool = False,
    weights: bool = False,
    layer: int = 0,
    causal: bool | None = None,
    masks: Sequence[str] | None = None,
) -> ExportResult:
    """Write a mechanism as a file or folder that does not need nas.

    All formats but ``py``, which tests itself, are first compared with the interpreter in a process
    without nas, also at lengths that were not traced.

    >>> result = nas.export("mha", "mha.py", dim=32, heads=2)
    >>> nas.load_genome(result.path) == nas.load_genome("mha")
    True

    Args:
        source: a SOURCE string or a genome.
        path: the file or folder to write; its parent folder must exist.
        format: ``py``, a readable file that needs torch alone; ``timm``, one with a class for
            timm's vision transformers; ``pt2``, a program of torch.export; ``onnx``; ``hf``, a
            folder that transformers loads; or a plug-in's.
        dim: model width (in ``py`` and ``timm`` the default of a class); that of the run's task,
            or 64.
        heads: heads of the backbone, likewise; those of the run's task, or 4.
        fast: write the form that trains fastest in place of the plainest.
        weights: also write the trained weights of a run's front member, as safetensors. Formats
            that hold weights include them without this option if there are any.
        layer: the backbone layer, counted from 0, whose weights are written.
        causal: of ``pt2``, ``onnx`` and ``hf``: hide later tokens; as in the run's task by default.
        masks: of ``pt2`` and ``onnx``: inputs beside the tokens, of ``attn_mask`` and
            ``key_padding_mask``; the latter by default.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        ExportError: the format, the path or an option cannot be used, a package is missing, there
            are no such weights, or the file's outputs differ from the mechanism's.
    """
    export_format, path = EXPORTS.get(format), Path(path)
    options = {"is_fast": fast or None, "is_causal": causal, "masks": masks}
    for name, value in options.items():
        if value is not None and name not in export_format.options:
            formats = [n for n in EXPORTS.names() if name in EXPORTS.get(n).options]
            expected = ", ".join(formats)
            raise ExportError(f"{OPTIONS[name]} is not for {format}; expected {expected}.")
    export_format.check_packages()
    check_target(path, export_format.suffix)
    resolved = resolve(source)
    task = resolved.task()
    model = task.main if task else None
    dim = dim if dim is not None else model.width if model else 64
    heads = heads if heads is not None else model.heads if model else 4
    if dim > MAX_DIM:
        raise ExportError(
            f"dim: found {dim}; expected at most {MAX_DIM}, at which an export is still compared "
            "with the mechanism. The class in an exported file takes any."
        )
    weights_file = None
    if weights or export_format.has_weights:
        weights_file = _weights_file(resolved, model, dim, heads, is_required=weights)
    trained, metadata = read_weights(weights_file) if weights_file else ({}, {})
    request = ExportRequest(
        *(resolved.genome, dim, heads, _provenance(resolved)),
        qkv_bias=bool(model and model.qkv_bias),
        is_fast=fast,
        is_causal=_is_causal(
            resolved.genome, causal, model, may="is_causal" in export_format.options
        ),
        masks=("key_padding_mask",) if masks is None else _checked(masks),
        layer=layer,
        weights=trained,
        task=model,
    )
    content, difference = export_format.content(request), None
    if not export_format.tests_itself:
        difference = export_format.check_content(request, content)
    write_export(content, path)
    target = None
    if weights_file and not export_format.has_weights:
        target = path.with_suffix(".safetensors")
        save_weights(request, metadata, target)
    remarks = tuple(f"{remark}." for remark in make_plan(resolved.genome).remarks(heads))
    is_trained = bool(trained) if export_format.has_weights else None
    return ExportResult(path, dim, heads, target, remarks, is_trained, difference)


def _checked(masks: Sequence[str]) -> tuple[str, ...]:
    """The masks in the order of ``MASKS``; ExportError for another name."""
    for name in masks:
        if name not in MASKS:
            raise ExportError(f"masks: found {name!r}; expected {' or '.join(MASKS)}, or none.")
    return tuple(name for name in MASKS if name in masks)


def _is_causal(genome: Genome, causal: bool | None, model: ModelTask | None, *, may: bool) -> bool:
    """The argument; by default whether the run's task is causal and the mechanism can be."""
    if causal is not None or not may:
        return bool(causal)
    return bool(model and model.is_causal) and not make_plan(genome).unsafe


def _weights_file(
    source: Source, model: ModelTask | None, dim: int, heads: int, *, is_required: bool
) -> Path | None:
    """The file of a front member's trained weights; None if there is none and none is required."""
    candidate, problem = None, ""
    if model is None or source.run is None or source.digest is None:
        problem = "has no trained weights; expected a member of a run, such as latest/best."
    elif (dim, heads) != (model.width, model.heads):
        problem = (
            f"the weights were trained at dim {model.width} and heads {model.heads}, not {dim} "
            f"and {heads}; leave dim and heads out."
        )
    else:
        with open_run(source.run) as run:
            candidate = find_candidate(run, source.digest)
        problem = "" if candidate else "was not trained, so it has no weights."
    if is_required and problem:
        raise ExportError(f"{source.text}: {problem}")
    if source.run is None or candidate is None:
        return None
    path = weights_path(source.run, candidate.key)
    return path if is_required or path.is_file() else None


def _provenance(source: Source) -> Provenance:
    """The provenance that an exported file states."""
    if source.run is None:
        return Provenance(source.text)
    with open_run(source.run) as run:
        setup, candidate = run.setup, find_candidate(run, source.digest or "")
        origin = f"space {setup.space.name}, task {setup.task.name}, seed {setup.config.seed}"
        about = f"{run.name} ({origin})"
        if candidate is None:
            return Provenance(source.text, about)
        count = len(candidate.trainings)
        date = run.started.date().isoformat()
    seeds = ", ".join(str(training.evaluation.seed) for training in candidate.trainings)
    results = [
        f"{count} {'training' if count == 1 else 'trainings'} (seeds {seeds}) of task "
        f"{setup.task.name}, run started {date}:"
    ]
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
        results.append(f"{name} {value} ({kind})")
    return Provenance(source.text, about, tuple(results))
