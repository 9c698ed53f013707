"""Promises of every mechanism: generated code, samples, masks, gradients, costs and files."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler import build_attention, make_plan, plain_source
from nas.costs import attention_cost
from nas.genome import Genome
from nas.genome.primitives import Role
from nas.store.sources import load_genome
from nas.testing.promises import Promise, keep, require, require_same

_SIZES: Final = ((32, 4), (64, 8), (16, 1))  # dim and heads; the first that exist are used
_OTHER_SIZES: Final = ((16, 4, 5), (96, 16, 1), (16, 1, 3))  # dim, heads and tokens


def check_mechanism(mechanism: Genome | str, *, still: Collection[str] = ()) -> None:
    """Check values, gradients, masks, samples, costs and files of a mechanism.

    Args:
        mechanism: a genome, or a string that names one (see ``nas.store.sources``).
        still: names of parameters that have no gradient, such as a constant added to all scores.

    Raises:
        AssertionError: a promise is broken; the message names it.
        GenomeError, ViolationError: the genome is invalid, or does not exist at a usual size.
    """
    genome = load_genome(mechanism) if isinstance(mechanism, str) else mechanism
    subject = f"the mechanism {mechanism if isinstance(mechanism, str) else genome.to_json()}"
    _size(genome)
    keep(subject, PROMISES, genome)
    keep(subject, [trains_every_parameter], genome, still)


@cache
def _size(genome: Genome) -> tuple[int, int]:
    for dim, heads in _SIZES:
        try:
            build_attention(genome, dim, heads)
        except GenomeError as error:
            last = error
        else:
            return dim, heads
    raise last


def _block(genome: Genome, *, reference: bool = False) -> Any:
    torch.manual_seed(0)
    return _noisy(build_attention(genome, *_size(genome), reference=reference))


def _noisy(block: nn.Module) -> nn.Module:
    """Return the block in float64 with noise on its weights, since zeros would hide errors."""
    with torch.no_grad():
        for parameter in block.double().parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def _draw(genome: Genome) -> Tensor:
    """Return random tokens (2, n, dim); n is 7, or more than the window reaches."""
    n = 7 if genome.visibility.window is None else genome.visibility.window + 8
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, n, _size(genome)[0], generator=generator, dtype=torch.float64)


def _moved(x: Tensor, token: int) -> Tensor:
    """Return the tokens with another value of one token of the last sample."""
    changed, generator = x.clone(), torch.Generator().manual_seed(2)
    changed[-1, token] += torch.randn(x.shape[-1], generator=generator, dtype=x.dtype)
    return changed


def _padding(x: Tensor, count: int) -> Tensor:
    mask = torch.zeros(x.shape[:2], dtype=torch.bool)
    mask[-1, -count:] = True
    return mask


def _masks(genome: Genome, x: Tensor) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments with masks of every kind; some hide all keys from a query."""
    n = x.shape[1]
    allowed = torch.rand(n, n, generator=torch.Generator().manual_seed(4)) > 0.3
    allowed[2] = False
    padding = {"key_padding_mask": _padding(x, 2)}
    yield from ({}, padding, {"attn_mask": allowed}, {"attn_mask": allowed, **padding})
    if not make_plan(genome).unsafe:
        yield from ({"is_causal": True}, {"is_causal": True, **padding})


def _is_recurrent(genome: Genome) -> bool:
    """Return whether an aggregation reads tokens and no weights, such as ``scan``."""
    steps = make_plan(genome).steps
    return any(step.role is Role.AGGREGATE and not step.is_paired for step in steps)


def exists_at_other_sizes(genome: Genome) -> None:
    """At other sizes the outputs are finite, and the costs count the block's parameters."""
    for dim, heads, tokens in _OTHER_SIZES:
        try:
            block = build_attention(genome, dim, heads)
        except GenomeError:
            continue
        out = block(torch.randn(2, tokens, dim))
        require(out.shape == (2, tokens, dim), f"the shape is {tuple(out.shape)}")
        require(torch.isfinite(out).all(), f"not finite at {dim} features, {heads} heads")
        counted = attention_cost(genome, dim=dim, heads=heads, tokens=tokens)["params"]
        number = sum(p.numel() for p in block.parameters())
        require(counted == number, f"the cost counts {counted} parameters, the block has {number}")


def equals_the_interpreter(genome: Genome) -> None:
    """The fast and exported forms equal the reference interpreter in outputs and gradients.

    They are compared in float64 under every mask. The exported form also has equal initial weights.
    """
    scope: dict[str, Any] = {"__name__": "written"}
    exec(plain_source(genome, *_size(genome)), scope)  # noqa: S102 - what is exported
    reference = _block(genome, reference=True)
    torch.manual_seed(0)
    exported = _noisy(scope["Attention"]())
    state = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    written = exported.state_dict()
    require(list(written) == list(state), f"the exported file has the parameters {list(written)}")
    is_same = all(torch.equal(written[key], state[key]) for key in written)
    require(is_same, "the exported file has other initial weights")
    x = _draw(genome)
    for masks in _masks(genome, x):
        expected = _gradients(reference, x, state, masks)
        for name, block in (("fast form", _block(genome)), ("exported file", exported)):
            what = f"the {name} under {', '.join(masks) or 'no mask'}"
            for pair in zip(_gradients(block, x, state, masks), expected, strict=True):
                require_same(*pair, what, 1e-9)


def _gradients(
    block: nn.Module, x: Tensor, state: dict[str, Tensor], masks: dict[str, Any]
) -> list[Tensor]:
    """Return the output, and the gradients of a weighted sum of the output."""
    block.load_state_dict(state)  # resets gates that count their calls
    x = x.clone().requires_grad_()
    out = block(x, **masks)
    above = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [x, *block.parameters()]
    gradients = torch.autograd.grad((out * above).sum(), leaves, allow_unused=True)
    return [out, *(torch.zeros(()) if g is None else g for g in gradients)]


def sees_what_masks_show(genome: Genome) -> None:
    """A token changes outputs of other tokens, but none of other samples or hidden by a mask.

    The last token is left out if tokens reach others by a recurrence, which reads no later token.
    """
    block, x = _block(genome), _draw(genome)
    last = x.shape[1] - 1
    for masks in _masks(genome, x):
        before, hidden = block(x, **masks), masks.get("key_padding_mask", torch.zeros(x.shape[:2]))
        for token in range(last + 1):
            after = block(_moved(x, token), **masks)
            require(torch.equal(after[0], before[0]), "another sample changes")
            gap = (after - before)[-1].abs().amax(dim=-1)
            others = (hidden[-1] == 0) & (torch.arange(last + 1) != token)
            if hidden[-1, token]:
                require(gap[others].max() <= 1e-12, f"the hidden token {token} is seen")
            elif "is_causal" in masks:
                require(not gap[:token].gt(1e-12).any(), f"token {token} is seen before")
                # The first token may see nothing but itself, and leave itself out.
                require(token == 0 or gap[token] > 1e-6, f"token {token} does not see itself")
            elif "attn_mask" not in masks:
                is_last = _is_recurrent(genome) and not others[token:].any()
                require(is_last or gap[others].max() > 1e-6, f"token {token} reaches none")


def is_equal_in_longer_sequences(genome: Genome) -> None:
    """Padding has the effect of a shorter sequence, and so have later tokens in a causal call.

    A mechanism that sees later tokens refuses causal calls by ValueError.
    """
    block, x = _block(genome), _draw(genome)
    out = block(x, key_padding_mask=_padding(x, 3))[-1, :-3]
    require_same(out, block(x[-1:, :-3])[0], "a padded sequence", 1e-10)
    try:
        whole = block(x, is_causal=True)
    except ValueError:
        require(make_plan(genome).unsafe, "it refuses causal calls")
        return
    require(not make_plan(genome).unsafe, "it sees later tokens and accepts causal calls")
    require_same(block(x[:, :-3], is_causal=True), whole[:, :-3], "a shorter sequence", 1e-10)


def gives_zeros_without_visible_keys(genome: Genome) -> None:
    """The row of a query without visible keys is zero before W_O, and changes no other row.

    A recurrence computes no weights of keys, which a mask could hide from one query.
    """
    if _is_recurrent(genome):
        return
    block, x = _block(genome), _draw(genome).requires_grad_()
    n = x.shape[1]
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed[2] = False
    out = block(x, attn_mask=allowed)
    nothing = block.wo.bias if genome.projections.has_wo else torch.zeros(x.shape[-1]).double()
    require_same(out[:, 2], nothing.expand(2, -1), "the row")
    rest = [t for t in range(n) if t != 2]
    require_same(out[:, rest], block(x)[:, rest], "another row")
    all_padding = torch.ones(2, n, dtype=torch.bool)
    (out.square().sum() + block(x, key_padding_mask=all_padding).square().sum()).backward()
    gradients = [t.grad for t in (x, *block.parameters()) if t.grad is not None]
    require(all(bool(torch.isfinite(g).all()) for g in gradients), "a gradient is not finite")


def trains_every_parameter(genome: Genome, still: Collection[str] = ()) -> None:
    """Every parameter has a gradient, except the parameters named ``still``."""
    block = _block(genome)
    block(_draw(genome)).square().sum().backward()
    named = block.named_parameters()
    names = {name for name, p in named if p.grad is None or p.grad.norm() < 1e-10}
    require(names == set(still), f"{sorted(names)} have none; expected {sorted(still)}")


def starts_from_the_seed(genome: Genome) -> None:
    """Equal seeds give equal blocks, other seeds other blocks; a pickled block is equal."""
    require(Genome.from_dict(genome.to_dict()) == genome, "the genome changes in JSON")
    x, blocks = _draw(genome).float(), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        blocks.append(build_attention(genome, *_size(genome)))
    copy = pickle.loads(pickle.dumps(blocks[0]))  # noqa: S301 - our own bytes
    copied = copy(x)
    first, same, other = (block(x) for block in blocks)
    require(torch.equal(first, same), "two blocks of one seed differ")
    require(torch.equal(first, copied), "a pickled block differs")
    is_drawn = any(True for _ in blocks[0].parameters())
    require(not (is_drawn and torch.equal(first, other)), "two seeds give equal blocks")


PROMISES: Final[tuple[Promise, ...]] = (
    exists_at_other_sizes,
    equals_the_interpreter,
    sees_what_masks_show,
    is_equal_in_longer_sequences,
    gives_zeros_without_visible_keys,
    starts_from_the_seed,
)
