"""Swap: replace the attention of an existing model.

    nas.swap_attention(model, "qana")                   # same outputs, additional parameters
    nas.swap_attention(model, "gqa", preserve=False)    # other outputs, to be trained

Projections, norms, rotation, cache, masks and dropout stay the model's; the computation between
them becomes the mechanism's graph. With ``preserve`` the mechanism must equal softmax attention
before training, so that the outputs do not change until training changes them (QANA: Vermillion
2025, section 4, "function-preserving"). Without ``preserve``, the fields of a genome have these
effects:

- graph: the graph runs on queries, keys and values that the model projected, normed and rotated.
  The genome's RoPE is left out on queries and keys that the model rotates, and stays on values and
  outputs.
- window, global tokens: the window hides further keys that the model's mask allows. In causal
  attention a window extends to the left only.
- q_heads, kv_heads: heads of the model are pooled, so that projections and cache become smaller
  (``nas.surgery.conversion``). The number of heads never increases.
- has_wq, has_wk, has_wv, has_wo: if the field is false, the model's projection is dropped.
- qk_dim: each head of queries and keys keeps its first features, in modules of torch and timm that
  neither norm nor rotate them; other models refuse the genome, since their heads have one width.
- raw: shared, merge: sum: the genome is refused.

In causal attention the genome is refused if the outputs of new tokens cannot be computed from the
cached keys and values of earlier tokens.

The names of new parameters contain ``core.`` after the name of the attention module. Load a
checkpoint of the original model before the swap, or with ``strict=False`` after the swap.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError, NasError
from nas.compiler import make_plan
from nas.genome import Genome, Rest
from nas.store.sources import load_genome
from nas.surgery.conversion import convert, description, is_converted
from nas.surgery.core import AttentionCore, HostSizes
from nas.surgery.host_form import check_decodable
from nas.surgery.hosts import CORE, HOSTS, Host
from nas.surgery.preserving import check_preserving, starting_at

Where = Callable[[str, nn.Module], bool] | Sequence[str] | None

# Names of cross-attention in torch's decoder layers and in models of transformers.
_CROSS_ATTENTION: Final = frozenset(
    ("multihead_attn", "encoder_attn", "EncDecAttention", "crossattention", "cross_attn")
)


class _Site(NamedTuple):
    """An attention module of a model, with its name and its kind."""

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
    """Replace the attention of a model in place; an error leaves the model unchanged.

    New weights are drawn from torch's global generator. ``nas.preview_swap`` shows beforehand what
    would change, and by how much.

    Args:
        model: a model that contains, or is, torch's nn.MultiheadAttention, timm's Attention, or an
            attention module of Hugging Face's transformers that uses the AttentionInterface.
        mechanism: a genome, or a string that names one (see ``nas.store.sources``).
        where: the attention modules that become the mechanism: None for the layers that the
            genome's field ``placement`` names, a function of name and module, or names and patterns
            as in ``fnmatch``. With None, the model's attention in the other layers gets the window
            and the key heads of the placement's ``rest``.
        init: the initialisation of every primitive that has it: ``zero_out``, ``identity``,
            ``gate`` (a closed gate, learned or opening over training), or ``paper_zero``, which
            keeps the outputs exactly but never trains. The default is ``zero_out`` or
            ``identity`` with ``preserve``, and the genome's value without it.
        preserve: whether to accept only mechanisms that keep the outputs. If False, every mechanism
            that the model can hold is accepted; heads, projections and window then change as this
            module describes.

    Returns:
        The names of the changed modules, in the model's order.

    Warns:
        UserWarning: a part of the mechanism can never train.

    Raises:
        GenomeError, ViolationError: the mechanism does not start equal to softmax attention, or
            without ``preserve`` the model cannot hold it.
        NasError: the model has no known attention at ``where``, or attention that computes more
            than a mechanism would keep.
    """
    genome = load_genome(mechanism) if isinstance(mechanism, str) else mechanism
    if init is not None or preserve:
        genome = starting_at(genome, init)
    if preserve:
        check_preserving(genome)
    chosen = _genomes(_sites(model), where, genome)
    if preserve and any(each != genome for _, each in chosen):
        raise GenomeError(
            f"placement ({genome.placement}) changes the attention of the other layers; "
            "preserve=False converts it."
        )
    cores = [(site, each, _core(each, site, preserve)) for site, each in chosen]
    for caution in make_plan(genome).cautions:
        warnings.warn(caution, stacklevel=2)
    for site, each, core in cores:
        if not preserve and is_converted(each, core.sizes):
            convert(site.module, each, core.sizes)
        site.host.install(site.module, core)
    return [site.name for site, _ in chosen]


def preview_swap(
    model: nn.Module,
    mechanism: Genome | str,
    batch: Any = None,
    *,
    where: Where = None,
    init: str | None = None,
) -> dict[str, Any]:
    """Swap the attention of a copy of the model, without ``preserve``, and describe the changes.

    Args:
        model: the model, which is not changed.
        mechanism: see ``swap_attention``.
        batch: the model's input: a tensor, a tuple of arguments or a mapping of named arguments.
        where: see ``swap_attention``.
        init: see ``swap_attention``.

    Returns:
        A dictionary. ``changes`` maps each module's name to a list of sentences. ``params`` holds
        the numbers of parameters [before, after]. With a batch, ``outputs`` is the relative change
        |after - before| / |before| of the first tensor that the model returns in eval mode (L2
        norms). ``loss`` holds the losses [before, after] if the model returns a loss, as models of
        transformers do for ``labels``. The preview draws the same new weights as a swap would draw
        now.

    Raises:
        GenomeError, ViolationError, NasError: as ``swap_attention`` raises them.
    """
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices=devices):
        swapped = deepcopy(model)
        names = swap_attention(swapped, mechanism, where=where, init=init, preserve=False)
    cores: dict[str, Any] = {name: swapped.get_submodule(name).core for name in names}
    answer: dict[str, Any] = {
        "changes": {name: list(core.changes) for name, core in cores.items()},
        "params": [sum(p.numel() for p in m.parameters()) for m in (model, swapped)],
    }
    if batch is None:
        return answer
    (before, loss), (after, new_loss) = (_outputs(m, batch) for m in (model, swapped))
    answer["outputs"] = float((after - before).norm() / before.norm())
    if loss is not None:
        answer["loss"] = [loss, new_loss]
    return answer


def _sites(model: nn.Module) -> list[_Site]:
    hosts = [host() for host in HOSTS.values()]
    sites = [
        _Site(name, module, next(host for host in hosts if host.recognises(module)))
        for name, module in model.named_modules()
        if any(host.recognises(module) for host in hosts)
    ]
    if not sites:
        raise NasError(
            f"{type(model).__name__} has no attention that is known; expected a module of "
            f"{', '.join(host.about for host in hosts)}.{HOSTS.complaints()}"
        )
    return sites


def _genomes(sites: list[_Site], where: Where, genome: Genome) -> list[tuple[_Site, Genome]]:
    """Return the attention modules to replace, each with the genome that it gets."""
    if where is not None:
        return [(site, genome) for site in _chosen(sites, where)]
    layers, has_rest = genome.placement.layers(len(sites)), genome.placement.rest != Rest()
    return [
        (site, genome if i in layers else genome.rest())
        for i, site in enumerate(sites)
        if i in layers or has_rest
    ]


def _chosen(sites: list[_Site], where: Callable[..., bool] | Sequence[str]) -> list[_Site]:
    """Return the attention modules that ``where`` selects; NasError if a pattern matches none."""
    expected = f"expected some of {', '.join(repr(site.name) for site in sites)}"
    if callable(where):
        chosen = [site for site in sites if where(site.name, site.module)]
    else:
        patterns = [where] if isinstance(where, str) else where
        for pattern in patterns:
            if not any(fnmatchcase(site.name, pattern) for site in sites):
                raise NasError(f"where: {pattern!r} matches no known attention; {expected}.")
        chosen = [site for site in sites if any(fnmatchcase(site.name, p) for p in patterns)]
    if not chosen:
        raise NasError(f"where: found {where!r}, which selects none; {expected}.")
    return chosen


def _sizes(site: _Site) -> HostSizes:
    before = getattr(site.module, CORE, None)
    if isinstance(before, AttentionCore):
        raise NasError(
            f"it was swapped before and holds {before.genome.to_json()}; its trained weights "
            "would be lost, so leave it out by `where`, or swap a new model."
        )
    try:
        sizes = site.host.measure(site.module)
    except NasError as error:
        raise NasError(f"{error}; leave it out by `where`.") from error.__cause__
    is_cross = sizes.is_cross or site.name.rpartition(".")[2] in _CROSS_ATTENTION
    return replace(sizes, is_cross=is_cross, is_causal=sizes.is_causal and not is_cross)


def _core(genome: Genome, site: _Site, preserve: bool) -> AttentionCore:
    """Return the module that computes the mechanism at a site, on the site's device.

    If the swap converts projections, it is first tried on a copy of the module.

    Args:
        genome: the mechanism.
        site: the attention module to replace.
        preserve: whether projections must not change.
    """
    like = next(p for p in site.module.parameters() if p.is_floating_point())
    try:
        sizes = _sizes(site)
        changes = () if preserve else description(genome, sizes)
        with torch.device(like.device):
            core = AttentionCore(genome, sizes, changes)
        core = core.to(like.dtype).train(site.module.training)
        if not preserve and sizes.is_causal:
            check_decodable(core.plan, sizes.is_sliding)
        if not preserve and is_converted(genome, sizes):
            copy = deepcopy(site.module)
            convert(copy, genome, sizes)
            site.host.install(copy, deepcopy(core))
            site.host.dry_run(copy)
    except NasError as error:
        where = f"the model's attention {site.name!r}"
        raise type(error)(f"{where}: {error}") from error.__cause__
    return core


def _outputs(model: nn.Module, batch: Any) -> tuple[Tensor, float | None]:
    """Return the first tensor that the model returns in eval mode, and the loss that it returns."""
    modes = {part: part.training for part in model.modules()}
    try:
        with torch.no_grad():
            model.eval()
            if isinstance(batch, Mapping):
                result = model(**batch)
            else:
                result = model(*batch) if isinstance(batch, tuple) else model(batch)
    finally:
        for part, mode in modes.items():
            part.training = mode
    loss = getattr(result, "loss", None)
    values = result.values() if isinstance(result, Mapping) else result
    values = [values] if isinstance(values, Tensor) else values
    first = next((v for v in values if isinstance(v, Tensor) and v.dim() and v is not loss), None)
    if first is None:
        raise NasError(f"{type(model).__name__} returns no tensor for this batch.")
    return first.double(), None if loss is None else float(loss)
