"""Swap: replace the attention of an existing model.

    nas.swap_attention(model, "qana")                   # same outputs, additional parameters
    nas.swap_attention(model, "gqa", preserve=False)    # other outputs, to be trained

Projections, norms, rotation, cache, masks and dropout stay the model's; the computation between
them becomes the mechanism's graph. docs/mechanisms.md has the effect of each field of a genome.

The names of new parameters contain ``core.`` after the name of the attention module. Load a
checkpoint of the original model before the swap, or with ``strict=False`` after the swap. The
``state_dict`` of a swapped model fits a model after the same swap.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from nas.common.arguments import public
from nas.common.errors import GenomeError, NasError, NasWarning
from nas.genome import Genome, Rest
from nas.store.sources import load_genome
from nas.surgery.conversion import converted
from nas.surgery.core import AttentionCore
from nas.surgery.host_form import check_decodable
from nas.surgery.hosts import CORE, TORCH_HOSTS, Host
from nas.surgery.hosts_transformers import TRANSFORMERS_HOSTS
from nas.surgery.preserving import preserving

HOSTS: Final[tuple[Host, ...]] = (*TORCH_HOSTS, *TRANSFORMERS_HOSTS)


class _Site(NamedTuple):
    name: str
    module: nn.Module
    host: Host


@public
def swap_attention(
    model: nn.Module,
    mechanism: Genome | str,
    *,
    where: str | Sequence[str] | None = None,
    preserve: bool = True,
) -> list[str]:
    """Replace the attention of a model in place; an error leaves the model unchanged.

    New weights are drawn from torch's global generator.

    Args:
        model: a model that contains, or is, torch's nn.MultiheadAttention, timm's Attention, or an
            attention module of transformers: GPT-2, ViT, Llama, Mistral, Qwen 2 and 3, Gemma.
        mechanism: a genome, or a string that names one (see ``nas.store.sources``).
        where: names of attention modules, or patterns as in ``fnmatch``. None stands for the layers
            that the genome's field ``placement`` names; the model's attention in the other layers
            then gets the window and the key heads of the placement's ``rest``.
        preserve: whether the mechanism must equal softmax attention before training, so that the
            outputs do not change until training changes them. Parameters ``init`` are set for this
            if they must be. If False, every mechanism that the model can hold is accepted; heads,
            projections and window then change.

    Returns:
        The names of the changed modules, in the model's order.

    Raises:
        GenomeError, ViolationError: the mechanism does not start equal to softmax attention, or
            without ``preserve`` the model cannot hold it.
        NasError: the model has no known attention at ``where``, or attention that computes more
            than a mechanism would keep.
    """
    genome = load_genome(mechanism) if isinstance(mechanism, str) else mechanism
    if preserve:
        genome = preserving(genome)
    chosen = _genomes(_sites(model), where, genome)
    if preserve and any(each != genome for _, each in chosen):
        raise GenomeError(
            f"placement ({genome.placement}) changes the attention of the other layers; "
            "preserve=False converts it."
        )
    swaps = [(site, *_prepared(site, each)) for site, each in chosen]
    for site, core, projections in swaps:
        if projections:
            site.host.replace(site.module, projections)
        site.host.install(site.module, core)
    for part in model.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False  # nested tensors of padded sequences suit torch alone
        is_swapped = any(isinstance(inner, AttentionCore) for inner in part.modules())
        if is_swapped and hasattr(part, "save_pretrained"):
            part.save_pretrained = partial(_save_pretrained, part)  # type: ignore[assignment]
    return [site.name for site, _ in chosen]


def _save_pretrained(model: Any, *arguments: Any, **options: Any) -> Any:
    warnings.warn(
        "save_pretrained saves no mechanism, and from_pretrained would load the model with its own "
        "attention; save the state_dict, and load it into a model after the same swap.",
        NasWarning,
        stacklevel=2,
    )
    return type(model).save_pretrained(model, *arguments, **options)


def _sites(model: nn.Module) -> list[_Site]:
    sites = [
        _Site(name, module, host)
        for name, module in model.named_modules()
        for host in HOSTS
        if host.recognises(module)
    ]
    if not sites:
        raise NasError(
            f"{type(model).__name__} has no attention that is known; expected a module of "
            f"{', '.join(host.about for host in HOSTS)}."
        )
    return sites


def _genomes(
    sites: list[_Site], where: str | Sequence[str] | None, genome: Genome
) -> list[tuple[_Site, Genome]]:
    """Return the attention modules to replace, each with the genome that it gets."""
    if where is None:
        layers, has_rest = genome.placement.layers(len(sites)), genome.placement.rest != Rest()
        return [
            (site, genome if i in layers else genome.rest())
            for i, site in enumerate(sites)
            if i in layers or has_rest
        ]
    patterns = [where] if isinstance(where, str) else where
    names = [site.name for site in sites]
    unmatched = [p for p in patterns if not any(fnmatchcase(name, p) for name in names)]
    if unmatched or not patterns:
        raise NasError(
            f"where: {unmatched or patterns} matches no known attention; expected some of "
            f"{', '.join(map(repr, names))}."
        )
    return [(site, genome) for site in sites if any(fnmatchcase(site.name, p) for p in patterns)]


def _prepared(site: _Site, genome: Genome) -> tuple[AttentionCore, dict[str, nn.Module]]:
    """Return the mechanism for a site, and the new projections if these change."""
    try:
        before = getattr(site.module, CORE, None)
        if isinstance(before, AttentionCore):
            raise NasError(
                "it was swapped before, and the weights of its mechanism would be lost; leave it "
                "out by `where`, or swap a new model."
            )
        sizes = site.host.measure(site.module)
        like = next(p for p in site.module.parameters() if p.is_floating_point())
        with torch.device(like.device):
            core = AttentionCore(genome, sizes).to(like.dtype).train(site.module.training)
        if sizes.is_causal:
            check_decodable(core.plan)
        parts = converted(core, site.host.projections(site.module))
        wrapped = [name for name, part in site.module.named_children() if [*part.children()]]
        if parts and wrapped:
            raise NasError(
                f"the swap replaces projections and would lose what {', '.join(wrapped)} adds to "
                "its weights; merge adapters before the swap."
            )
        return core, parts
    except NasError as error:
        where = f"the model's attention {site.name!r}"
        raise type(error)(f"{where}: {error}") from error.__cause__
