"""Swap: give a model that exists another attention.

    nas.swap_attention(model, "qana")                   # computes the same, can learn more
    nas.swap_attention(model, "gqa", preserve=False)    # computes something else, to be trained

Projections, norms, rotation, cache, masks and dropout stay the model's, the core between them
becomes the mechanism's graph. With ``preserve`` only mechanisms that start equal to softmax
attention are taken, so the outputs are those of before; training then moves what is new (QANA:
Vermillion 2025, section 4, "function-preserving"). Without, a genome means in a model:

- graph: runs on the queries, keys and values that the model projected, normed and rotated. RoPE of
  its own is left out on queries and keys that the model rotates, and stays on values and outputs.
- window, global tokens: narrow the model's mask. In causal attention a window reaches back alone.
- q_heads, kv_heads: the model's heads are pooled, its projections and its cache become smaller; a
  model with fewer heads of keys than that keeps them (``nas.surgery.conversion``).
- has_wq, has_wk, has_wv, has_wo: false drops the model's projection.
- qk_dim, raw: shared, merge: sum: refused, since a model's heads have one width.
- In causal attention all must follow from keys and values of single tokens, which a cache holds.

New parameters are named ``core.*`` below the attention; a checkpoint of the model is loaded before
the swap, or with ``strict=False`` after it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import make_plan
from nas.genome import Genome, layers_with_mechanism
from nas.store.sources import load_genome
from nas.surgery.conversion import convert, described, is_converted
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.hosted import check_decodable
from nas.surgery.hosts import CORE, HOSTS, Host
from nas.surgery.preserving import check_preserving, starting_at

Where = Callable[[str, nn.Module], bool] | Sequence[str] | None


@dataclass(frozen=True)
class _Site:
    """An attention module of the model, by the name that the model gives it."""

    name: str
    module: nn.Module
    host: Host


def swap_attention(
    model: nn.Module,
    mechanism: Genome | str,
    *,
    where: Where = None,
    init: str | None = None,
    preserve: bool = True,
) -> list[str]:
    """Exchange the attention of a model in place; where an error is raised nothing changes.

    New weights are drawn from torch's global generator. ``nas.preview_swap`` says beforehand what
    would change, and by how much.

    Args:
        model: holds torch's nn.MultiheadAttention, timm's Attention or attention of Hugging Face's
            transformers (its AttentionInterface), or is one.
        mechanism: a genome, or a SOURCE string (see ``nas.store.sources``).
        where: which attention: all of it (None; then the genome's placement counts its layers), a
            function of name and module, or names and patterns as in ``fnmatch``.
        init: the start of every primitive that has one: ``zero_out`` (None means this where
            ``preserve``, else what the genome says), ``gate`` (a closed gate, learned or warming
            up) or ``paper_zero`` (exact, but never trains).
        preserve: take only what keeps the outputs. Otherwise any mechanism that the model's form
            can carry; its heads, projections and window are honoured as the module's page says.

    Returns:
        The names of the modules that were changed, in the model's order.

    Warns:
        UserWarning: a part of the mechanism can never train.

    Raises:
        GenomeError, ViolationError: the mechanism does not start equal to softmax attention, or
            without ``preserve`` the model's form cannot carry it.
        NasError: there is no attention that is known and named, or one does more than a mechanism
            can keep.
    """
    genome = load_genome(mechanism) if isinstance(mechanism, str) else mechanism
    if init is not None or preserve:
        genome = starting_at(genome, init or "zero_out")
    if preserve:
        check_preserving(genome, init or "zero_out")
    sites = _chosen(_sites(model), where, genome.placement)
    built = [(site, _built(genome, _measured(site), site, preserve)) for site in sites]
    for caution in make_plan(genome).cautions:
        warnings.warn(caution, stacklevel=2)
    for site, core in built:
        if not preserve and is_converted(genome, core.sizes):
            convert(site.module, genome, core.sizes)
        site.host.install(site.module, core)
    return [site.name for site in sites]


def _sites(model: nn.Module) -> list[_Site]:
    hosts = [host() for host in HOSTS.values()]
    found = [
        _Site(name, module, next(host for host in hosts if host.recognises(module)))
        for name, module in model.named_modules()
        if any(host.recognises(module) for host in hosts)
    ]
    if not found:
        raise NasError(
            f"{type(model).__name__} has no attention that is known; expected a module of "
            f"{', '.join(host.about for host in hosts)}.{HOSTS.complaints()}"
        )
    return found


def _chosen(sites: list[_Site], where: Where, placement: str) -> list[_Site]:
    """The sites that ``where`` names; a pattern that names none is an error."""
    if where is None:
        return [sites[i] for i in layers_with_mechanism(placement, len(sites))]
    expected = f"names or patterns of {', '.join(repr(site.name) for site in sites)}"
    if callable(where):
        chosen = [site for site in sites if where(site.name, site.module)]
        if not chosen:
            raise NasError(f"where: the function chose none; expected some of the {expected}.")
        return chosen
    patterns = [where] if isinstance(where, str) else where
    if not isinstance(patterns, list | tuple) or not patterns:
        raise NasError(
            f"where: found {where!r}; expected a function of name and module, or {expected}."
        )
    for pattern in patterns:
        if not any(fnmatchcase(site.name, pattern) for site in sites):
            raise NasError(f"where: {pattern!r} matches no known attention; expected {expected}.")
    return [site for site in sites if any(fnmatchcase(site.name, p) for p in patterns)]


def _measured(site: _Site) -> HostSizes:
    """A site's sizes, or the error that names it."""
    there = f"the model's attention {site.name!r}"
    if isinstance(before := getattr(site.module, CORE, None), AttentionCore):
        raise NasError(
            f"{there} was swapped before and holds {before.genome.to_json()}; what it has "
            "learned would be lost, so leave it out by `where`, or swap a fresh model."
        )
    try:
        return site.host.measure(site.module)
    except NasError as error:
        raise NasError(f"{there}: {error}; leave it out by `where`.") from error.__cause__


def _built(genome: Genome, sizes: HostSizes, site: _Site, preserve: bool) -> AttentionCore:
    """A core where the module's weights are, as they are; what must be converted was tried."""
    there = f"the model's attention {site.name!r}"
    changes: tuple[str, ...] = ()
    like = next(p for p in site.module.parameters() if p.is_floating_point())
    try:
        if not preserve:
            changes = described(genome, sizes)
        with torch.device(like.device):
            core = AttentionCore(genome, sizes, changes)
        core = core.to(like.dtype).train(site.module.training)
        if not preserve and sizes.is_causal:
            check_decodable(core.plan, sizes.is_sliding)
        if not preserve and is_converted(genome, sizes):
            _rehearse(genome, core, site)
    except GenomeError as error:
        raise GenomeError(f"{there}: {error}") from error.__cause__
    return core


def _rehearse(genome: Genome, core: AttentionCore, site: _Site) -> None:
    """Convert a copy and let it attend."""
    copy = deepcopy(site.module)
    convert(copy, genome, core.sizes)
    site.host.install(copy, deepcopy(core))
    site.host.rehearse(copy)
