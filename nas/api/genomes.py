"""Genomes: what one costs, all that is known of it, whether it is legal; as a module, as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from nas import compiler, validation
from nas.canonical import digest
from nas.costs import COSTS
from nas.errors import ExportError
from nas.exporting import EXPORTS, Origin, check_target, export_weights, write_export
from nas.genome import Genome, layers_with_mechanism
from nas.mechanisms import MECHANISMS
from nas.objectives import QUALITY
from nas.report.costs import cost_answer, count_costs
from nas.report.show import examine, show_answer
from nas.report.units import quantity
from nas.sources import load_genome, resolve
from nas.store import find_candidate, open_run, weights_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from nas.sources import Source
    from nas.tasks import ModelTask

Given: TypeAlias = str | Path | Genome


@dataclass(frozen=True)
class Exported:
    """What was written: a file, its class's default sizes, weights beside it, what to know."""

    path: Path
    dim: int
    heads: int
    weights: Path | None = None
    remarks: tuple[str, ...] = ()


def cost(
    sources: Given | Sequence[Given],
    *,
    dim: int = 64,
    heads: int = 4,
    tokens: int | Sequence[int] = 65,
) -> Any:
    """What one attention block costs: a dict for one source and length, else a list of them.

    Raises:
        GenomeError, ViolationError: a mechanism does not exist at this size.
    """
    given = [sources] if isinstance(sources, Given) else sources
    lengths = [tokens] if isinstance(tokens, int) else tokens
    return cost_answer(count_costs([resolve(source) for source in given], dim, heads, lengths))


def show(
    source: Given, *, dim: int | None = None, heads: int | None = None, tokens: int | None = None
) -> dict[str, Any]:
    """All that is known of one genome: the answer of ``nas show --json``; see ``examine``."""
    return show_answer(examine(resolve(source), dim, heads, tokens))


def validate(source: Given, *, policy: str = "score_normalize_aggregate") -> dict[str, Any]:
    """Judge a genome by types and a policy: the answer of ``nas validate --json``."""
    rules, genome = validation.load_policy(policy), resolve(source).genome
    found = validation.with_repairs(genome, rules, validation.validate(genome, rules))
    return {
        "valid": not found,
        "digest": digest(genome),
        "policy": rules.name,
        "violations": [violation.to_dict() for violation in found],
    }


def build_attention(source: Given, dim: int, heads: int, *, qkv_bias: bool = False) -> nn.Module:
    """A mechanism as a module: ``block(x, attn_mask, key_padding_mask, is_causal)``.

    See ``nas.compiler.build_attention``, which also takes the options of its back ends.
    """
    return compiler.build_attention(load_genome(source), dim, heads, qkv_bias=qkv_bias)


def export(
    source: Given,
    path: str | Path,
    *,
    format: str = "py",  # noqa: A002 - what the option is called
    dim: int | None = None,
    heads: int | None = None,
    fast: bool = False,
    weights: bool = False,
    layer: int = 0,
) -> Exported:
    """Write a mechanism as a file to take away.

    Args:
        format: ``py``, one readable file whose only import is torch; or a plug-in's.
        dim, heads: default sizes of its class; those of the run's task, or 64 and 4.
        fast: write the form that trains fastest in place of the plainest.
        weights: also write what a run keeps of its front member's training, as safetensors.
        layer: whose weights: a layer of the backbone.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        ExportError: it cannot be written so, or there; or no weights of it are kept.
    """
    written, path = EXPORTS.get(format), Path(path)
    check_target(path, written.suffix)
    found = resolve(source)
    task = found.task()
    model = task.main if task else None
    dim = dim if dim is not None else model.width if model else 64
    heads = heads if heads is not None else model.heads if model else 4
    kept = _kept_weights(found, model, dim, heads, layer) if weights else None
    bias = bool(model and model.qkv_bias)
    content = written(found.genome, dim, heads, _origin(found), qkv_bias=bias, is_fast=fast)
    write_export(content, path)
    target = path.with_suffix(".safetensors") if kept else None
    if kept and target:
        export_weights(kept, layer, found.genome, target)
    remarks = compiler.make_plan(found.genome).remarks(heads)
    return Exported(path, dim, heads, target, tuple(f"{remark}." for remark in remarks))


def list_objectives() -> dict[str, str]:
    """What a space may name as objectives, and what each is; a task's other metrics too."""
    quality = "the first metric of the task that is searched on; its others by their own names"
    return {QUALITY: quality} | {name: COSTS.get(name).about for name in COSTS.names()}


def list_mechanisms() -> dict[str, str]:
    """The named mechanisms, and what each is."""
    return {name: found.about for name, found in MECHANISMS.items()}


def _kept_weights(
    source: Source, model: ModelTask | None, dim: int, heads: int, layer: int
) -> Path:
    """The file in which a run keeps the weights of a member of its front."""
    if model is None or source.run is None or source.digest is None:
        raise ExportError(
            f"{source.text}: has no trained weights; expected a member of a run, such as "
            "latest/best."
        )
    if (dim, heads) != (model.width, model.heads):
        raise ExportError(
            f"the weights were trained at dim {model.width} and heads {model.heads}, not {dim} "
            f"and {heads}; leave dim and heads out."
        )
    own = layers_with_mechanism(source.genome.placement, model.depth)
    if layer not in own:
        raise ExportError(
            f"layer {layer} does not hold the mechanism; expected one of "
            f"{', '.join(map(str, own))}."
        )
    with open_run(source.run) as run:
        candidate = find_candidate(run, source.digest)
    if candidate is None:
        raise ExportError(f"{source.text}: was not trained, so it has no weights.")
    return weights_path(source.run, candidate.proposal.key or "")


def _origin(source: Source) -> Origin:
    """What an exported file says of its source."""
    if source.run is None:
        return Origin(source.text)
    with open_run(source.run) as run:
        found, setup, name = find_candidate(run, source.digest or ""), run.setup, run.name
    about = f"{name} (space {setup.space.name}, task {setup.task.name}, seed {setup.seed})"
    if found is None:
        return Origin(source.text, about)
    told = (f"{o.name} {quantity(found.objectives[o.name], o.unit)}" for o in setup.objectives)
    return Origin(source.text, about, ", ".join(told))
