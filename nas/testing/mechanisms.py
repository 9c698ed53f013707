"""Promises of every mechanism: generated code, samples, masks, gradients, costs and files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator
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


def _size(genome: Genome) -> tuple[int, int]:
    for dim, heads in _SIZES:
        try:
            build_attention(genome, dim, heads)
        except GenomeError as error:
            last = error
        else:
            return dim, heads
    raise last


def _block(genome: Genome, make: Callable[[], nn.Module] | None = None) -> nn.Module:
    """Return a block in float64 with noise on its weights, since zero weights would hide errors.

    Args:
        genome: the mechanism.
        make: function that builds the block; by default ``build_attention`` builds it.
    """
    torch.manual_seed(0)
    block = (make() if make else build_attention(genome, *_size(genome))).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def _draw(genome: Genome, batch: int, tokens: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = batch, tokens, _size(genome)[0]
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _moved(x: Tensor, sample: int, token: int) -> Tensor:
    changed, generator = x.clone(), torch.Generator().manual_seed(2)
    changed[sample, token] += torch.randn(x.shape[-1], generator=generator, dtype=x.dtype)
    return changed


def _padding(batch: int, tokens: int, count: int) -> Tensor:
    mask = torch.zeros(batch, tokens, dtype=torch.bool)
    mask[-1, tokens - count :] = True
    return mask


def _length(genome: Genome) -> int:
    """Return a sequence length that is longer than the mechanism's window; 7 without a window."""
    window = genome.visibility.window
    return 7 if window is None else window + 8


def _masks(genome: Genome, batch: int) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments with masks of every kind; some hide all keys from a query."""
    n = _length(genome)
    allowed = torch.rand(n, n, generator=torch.Generator().manual_seed(4)) > 0.3
    allowed[2] = False
    padding = {"key_padding_mask": _padding(batch, n, 2)}
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
        counted = attention_cost(genome, dim=dim, heads=heads, tokens=tokens).params
        number = sum(p.numel() for p in block.parameters())
        require(counted == number, f"the cost counts {counted} parameters, the block has {number}")


def equals_the_interpreter(genome: Genome) -> None:
    """The fast and exported forms equal the reference interpreter in outputs and gradients.

    They are compared in float64 under every mask. The exported form also has equal initial weights.
    """
    dim, heads = _size(genome)
    scope: dict[str, Any] = {"__name__": "written"}
    exec(plain_source(genome, dim, heads), scope)  # noqa: S102 - what is exported
    reference = _block(genome, lambda: build_attention(genome, dim, heads, reference=True))
    blocks = {"fast form": _block(genome), "exported file": _block(genome, scope["Attention"])}
    state = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    exported = blocks["exported file"].state_dict()
    names = ", ".join(exported)
    require(list(exported) == list(state), f"the exported file has the parameters {names}")
    is_same = all(torch.equal(exported[key], state[key]) for key in exported)
    require(is_same, "the exported file has other initial weights")
    x = _draw(genome, 2, _length(genome))
    for masks in _masks(genome, 2):
        expected = _gradients(reference, x, state, masks)
        for name, block in blocks.items():
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


def keeps_samples_apart(genome: Genome) -> None:
    """A change of one sample does not change other samples by a single bit."""
    n = _length(genome)
    block, x = _block(genome), _draw(genome, 3, n)
    for masks in _masks(genome, 3):
        before, after = block(x, **masks), block(_moved(x, 1, 3), **masks)
        require(torch.equal(after[[0, 2]], before[[0, 2]]), "another sample changes")
        require(not torch.equal(after[1], before[1]), "the changed sample gives the same")


def lets_every_token_reach_another(genome: Genome) -> None:
    """Every token that is not padding changes the output of another token.

    The last token is left out if tokens reach others by a recurrence, which reads no later token.
    """
    n = _length(genome)
    block, x, hidden = _block(genome), _draw(genome, 2, n), _padding(2, n, 2)
    before = block(x, key_padding_mask=hidden)
    for sample, token in (~hidden).nonzero().tolist():
        after = block(_moved(x, sample, token), key_padding_mask=hidden)
        others = [t for t in range(n) if t != token and not hidden[sample, t]]
        if _is_recurrent(genome) and token == max(*others, token):
            continue
        gap = (after - before)[sample, others].abs().max()
        require(gap > 1e-6, f"token {token} reaches none")


def hides_the_future(genome: Genome) -> None:
    """A causal call hides exactly the later tokens, or raises ValueError."""
    n = _length(genome)
    block, x = _block(genome), _draw(genome, 1, n)
    if make_plan(genome).unsafe:
        try:
            block(x, is_causal=True)
        except ValueError:
            return
        raise AssertionError("it sees later tokens and accepts causal calls")
    before = block(x, is_causal=True)
    for token in range(1, n):
        after = block(_moved(x, 0, token), is_causal=True)
        require_same(after[:, :token], before[:, :token], f"the output before token {token}")
        require((after - before)[:, token].abs().max() > 1e-6, f"token {token} does not see itself")
    longer = block(torch.cat([x, _draw(genome, 1, 3, seed=5)], dim=1), is_causal=True)
    require_same(longer[:, :n], before, "the start of a longer sequence", 1e-10)


def takes_padding_as_absent(genome: Genome) -> None:
    """Padding has the effect of a shorter sequence."""
    n = _length(genome)
    block, x = _block(genome), _draw(genome, 2, n)
    out = block(x, key_padding_mask=_padding(2, n, 3))[-1, : n - 3]
    require_same(out, block(x[-1:, : n - 3])[0], "a padded sequence", 1e-10)


def gives_zeros_without_visible_keys(genome: Genome) -> None:
    """The row of a query without visible keys is zero before W_O, and changes no other row.

    A recurrence computes no weights of keys, which a mask could hide from one query.
    """
    if _is_recurrent(genome):
        return
    n = _length(genome)
    block: Any = _block(genome)
    x = _draw(genome, 2, n).requires_grad_()
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
    block, x = _block(genome), _draw(genome, 2, _length(genome))
    block(x).square().sum().backward()
    named = block.named_parameters()
    names = {name for name, p in named if p.grad is None or p.grad.norm() < 1e-10}
    require(names == set(still), f"{sorted(names)} have none; expected {sorted(still)}")


def starts_from_the_seed(genome: Genome) -> None:
    """Equal seeds give equal blocks; another seed gives another block, if the block has weights."""
    x, outputs = _draw(genome, 2, _length(genome)).float(), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        block = build_attention(genome, *_size(genome))
        outputs.append(block(x))
    require(torch.equal(outputs[0], outputs[1]), "two blocks of one seed differ")
    is_drawn = any(True for _ in block.parameters())
    require(not (is_drawn and torch.equal(outputs[0], outputs[2])), "two seeds give equal blocks")


def survives_pickle(genome: Genome) -> None:
    """A genome survives JSON, and a block survives pickle, without change."""
    require(Genome.from_dict(genome.to_dict()) == genome, "the genome changes")
    block, x = _block(genome), _draw(genome, 2, _length(genome))
    copy = pickle.loads(pickle.dumps(block))  # noqa: S301 - our own bytes
    require(torch.equal(copy(x), block(x)), "the outputs of the block change")


PROMISES: Final[tuple[Promise, ...]] = (
    exists_at_other_sizes,
    equals_the_interpreter,
    keeps_samples_apart,
    lets_every_token_reach_another,
    hides_the_future,
    takes_padding_as_absent,
    gives_zeros_without_visible_keys,
    starts_from_the_seed,
    survives_pickle,
)
