"""``nas.export``: write a mechanism as a file or folder that does not need nas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nas.common.errors import ExportError
from nas.common.text import plural
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
        path: the written file or folder.
        dim: model width, in features of a token.
        heads: number of heads of the backbone.
        layer: index of the backbone layer whose weights are written.
        weights: the written file of trained weights beside ``path``; None if it was not written.
        remarks: sentences on head counts below one, for which one head is used.
        is_trained: whether ``path`` contains trained weights; None if it contains no weights.
        difference: largest difference between the outputs of the export and of nas's unoptimised
            implementation, divided by the largest output if that is above 1. None if the outputs
            were not compared.
    """

    path: Path
    dim: int
    heads: int
    layer: int = 0
    weights: Path | None = None
    remarks: tuple[str, ...] = ()
    is_trained: bool | None = None
    difference: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, with paths as strings."""
        weights = None if self.weights is None else str(self.weights)
        return super().to_dict() | {"path": str(self.path), "weights": weights}


def export(
    source: str | Path | Genome,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - name of the option
    dim: int | None = None,
    heads: int | None = None,
    fast: bool = False,
    weights: bool = False,
    layer: int | None = None,
    causal: bool | None = None,
    masks: Sequence[str] | None = None,
) -> ExportResult:
    """Write a mechanism as a file or folder that does not need nas.

    Before it is written, the export runs in a process without nas, and its outputs are compared
    with those of nas's unoptimised implementation. Only the format ``py`` is not compared, because
    its file contains its own test.

    Examples:
        >>> result = nas.export("mha", "mha.py", dim=32, heads=2)
        >>> nas.load_genome(result.path) == nas.load_genome("mha")
        True

    Args:
        source: a genome, or a string or path that names one (see ``nas.store.sources``).
        path: the file or folder to write; its parent folder must exist.
        format: ``py``, a readable file that needs torch only; ``timm``, a file with a class for
            timm's vision transformers; ``pt2``, a program of torch.export; ``onnx``; ``hf``, a
            folder that transformers loads; or the name of a plug-in's format. By default it is the
            one of the path's suffix: ``.py``, ``.pt2`` or ``.onnx``.
        dim: model width; in ``py`` and ``timm`` it is the default of a class. The width of the
            run's task by default, or 64.
        heads: number of heads of the backbone; in ``py`` and ``timm`` it is the default of a class.
            The heads of the run's task by default, or 4.
        fast: whether to write the form that trains fastest instead of the most readable form.
        weights: whether to write also the trained weights, as safetensors, if the genome comes from
            a run. Formats that contain weights include trained weights without this option.
        layer: index from 0 of the backbone layer whose weights are written; by default the first
            layer with the mechanism.
        causal: in ``pt2``, ``onnx`` and ``hf``, whether to hide later tokens; by default as in the
            run's task.
        masks: in ``pt2`` and ``onnx``, the inputs beside the tokens: some of ``attn_mask`` and
            ``key_padding_mask``; by default ``key_padding_mask``.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        ExportError: the format, the path or an option cannot be used, a package is missing, there
            are no such weights, or the compared outputs differ.
    """
    path = Path(path)
    if format is None:
        names = [name for name, f in EXPORTS.items() if f.suffix == path.suffix not in ("", ".py")]
        format = names[0] if names else "py"  # noqa: A001
    export_format = EXPORTS.get(format)
    options = {"is_fast": fast or None, "is_causal": causal, "masks": masks}
    for name, value in options.items():
        if value is not None and name not in export_format.options:
            formats = ", ".join(n for n, f in EXPORTS.items() if name in f.options)
            raise ExportError(f"{OPTIONS[name]} is not for {format}; expected {formats}.")
    for name in masks or ():
        if name not in MASKS:
            raise ExportError(f"masks: found {name!r}; expected {' or '.join(MASKS)}, or none.")
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
    plan = make_plan(resolved.genome)
    if causal is None and "is_causal" in export_format.options and model:
        causal = model.is_causal and not plan.unsafe
    request = ExportRequest(
        *(resolved.genome, dim, heads, _provenance(resolved)),
        qkv_bias=bool(model and model.qkv_bias),
        is_fast=fast,
        is_causal=bool(causal),
        masks=tuple(n for n in MASKS if n in (("key_padding_mask",) if masks is None else masks)),
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
    remarks = tuple(f"{remark}." for remark in plan.remarks(heads))
    is_trained = bool(trained) if export_format.has_weights else None
    written = request.written_layer
    return ExportResult(path, dim, heads, written, target, remarks, is_trained, difference)


def _weights_file(
    source: Source, model: ModelTask | None, dim: int, heads: int, *, is_required: bool
) -> Path | None:
    """Return the file of the trained weights of a run's mechanism; None if there is none.

    Raises:
        ExportError: weights are required, and the source has no weights of this size.
    """
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
    """Return the genome's name, its run and the values of its objectives, for the exported file."""
    if source.run is None:
        return Provenance(source.text)
    with open_run(source.run) as run:
        setup, candidate = run.setup, find_candidate(run, source.digest or "")
        origin = f"space {setup.space.name}, task {setup.front_task.name}, seed {setup.config.seed}"
        about = f"{run.name} ({origin})"
        if candidate is None:
            return Provenance(source.text, about)
        scored = candidate.scored
        trainings, date = plural(len(scored), "training"), run.started.date()
    seeds = ", ".join(str(training.evaluation.seed) for training in scored)
    results = [f"{trainings} (seeds {seeds}) of task {setup.front_task.name}, run started {date}:"]
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
