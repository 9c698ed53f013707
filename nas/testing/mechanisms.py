"""Promises of every mechanism: generated code, samples, masks, gradients, costs and files."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Final

import torch
from torch import Tensor

from nas.compiler import build_attention, make_plan, plain_source
from nas.costs import attention_cost
from nas.genome import Genome, ModelSizes
from nas.genome.primitives import Role
from nas.store.sources import load_genome
from nas.testing.promises import PROBED, Promise, gradients, keep, noisy, require, require_same
from nas.training.dependence import probe

_SIZE: Final = 32, 4  # dim and heads
_OTHER_SIZES: Final = ((16, 4, 5), (96, 16, 1), (16, 1, 3))  # dim, heads and tokens


def check_mechanism(mechanism: Genome | str, *, still: Collection[str] = ()) -> None:
    """Check values, gradients, masks, samples, costs and files of a mechanism.

    Args:
        mechanism: a genome, or a string that names one (see ``nas.store.sources``).
        still: names of parameters that have no gradient, such as a constant added to all scores.
    """
    genome = load_genome(mechanism) if isinstance(mechanism, str) else mechanism
    make_plan(genome)
    subject = f"the mechanism {mechanism if isinstance(mechanism, str) else genome.to_json()}"
    keep(subject, PROMISES, genome)
    keep(subject, [trains_every_parameter], genome, still)


def _block(genome: Genome, *, reference: bool = False) -> Any:
    torch.manual_seed(0)
    return noisy(build_attention(genome, *_SIZE, reference=reference))


def _draw(genome: Genome, examples: int = 2, tokens: int = 7) -> Tensor:
    n = tokens + (genome.visibility.window or 0)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(examples, n, _SIZE[0], generator=generator, dtype=torch.float64)


def _masks(genome: Genome, x: Tensor) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments with masks of every kind; some hide all keys from a query."""
    n = x.shape[1]
    allowed = torch.rand(n, n, generator=torch.Generator().manual_seed(4)) > 0.3
    allowed[2] = False
    hidden = torch.zeros(x.shape[:2], dtype=torch.bool)
    hidden[-1, -2:] = True
    padding = {"key_padding_mask": hidden}
    yield from ({}, padding, {"attn_mask": allowed}, {"attn_mask": allowed, **padding})
    if not make_plan(genome).unsafe:
        yield from ({"is_causal": True}, {"is_causal": True, **padding})


def exists_at_other_sizes(genome: Genome) -> None:
    """At other sizes the outputs are finite, and the costs count the block's parameters."""
    for dim, heads, tokens in _OTHER_SIZES:
        block = build_attention(genome, dim, heads)
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
    exec(plain_source(genome, *_SIZE), scope)  # noqa: S102 - what is exported
    reference, fast = _block(genome, reference=True), _block(genome)
    torch.manual_seed(0)
    exported = noisy(scope["Attention"]())
    state = {name: tensor.clone() for name, tensor in reference.state_dict().items()}
    written = exported.state_dict()
    require(list(written) == list(state), f"the exported file has the parameters {list(written)}")
    is_same = all(torch.equal(written[key], state[key]) for key in written)
    require(is_same, "the exported file has other initial weights")
    x = _draw(genome).requires_grad_()
    for masks in _masks(genome, x):
        results = []
        for block in (reference, fast, exported):
            block.load_state_dict(state)  # resets gates that count their calls
            out = block(x, **masks)
            results.append([out, *gradients(out, [x, *block.parameters()])])
        for name, result in (("fast form", results[1]), ("exported file", results[2])):
            for actual, expected in zip(result, results[0], strict=True):
                what = f"the {name} under {', '.join(masks) or 'no mask'}"
                require_same(actual, expected, what, 1e-9)


def sees_no_later_token_and_no_other_example(genome: Genome) -> None:
    """An output depends on no other example and, in causal calls, on no later token.

    A mechanism that sees later tokens refuses causal calls by ValueError.
    """
    block, x, is_unsafe = _block(genome), _draw(genome, *PROBED), make_plan(genome).unsafe
    sizes = ModelSizes(*_SIZE, 1, x.shape[1])
    for is_causal in (False,) if is_unsafe else (False, True):
        probe(block, sizes, is_causal=is_causal, tokens=x)
    if is_unsafe:
        with suppress(ValueError):
            block(x, is_causal=True)
            raise AssertionError("it sees later tokens and accepts causal calls")


def is_equal_in_longer_sequences(genome: Genome) -> None:
    """Padding has the effect of a shorter sequence."""
    block, x = _block(genome), _draw(genome)
    for masks in _masks(genome, x):
        if "key_padding_mask" in masks:
            out = block(x, **masks)[-1, :-2]
            shorter = {name: m for name, m in masks.items() if name != "key_padding_mask"}
            if "attn_mask" in shorter:
                shorter["attn_mask"] = shorter["attn_mask"][:-2, :-2]
            what = f"a padded sequence under {', '.join(masks)}"
            require_same(out, block(x[-1:, :-2], **shorter)[0], what, 1e-10)


def gives_zeros_without_visible_keys(genome: Genome) -> None:
    """The row of a query without visible keys is zero before W_O, and changes no other row.

    A recurrence computes no weights of keys, which a mask could hide from one query.
    """
    steps = make_plan(genome).steps
    if any(step.role is Role.AGGREGATE and not step.is_paired for step in steps):
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
    both = torch.stack([out, block(x, key_padding_mask=all_padding)])
    for gradient in gradients(both, [x, *block.parameters()]):
        require(gradient.isfinite().all(), "a gradient is not finite")


def trains_every_parameter(genome: Genome, still: Collection[str] = ()) -> None:
    """Every parameter has a gradient, except the parameters named ``still``."""
    block = _block(genome)
    named = dict(block.named_parameters())
    found = gradients(block(_draw(genome)), named.values())
    names = {name for name, g in zip(named, found, strict=True) if g.norm() < 1e-10}
    require(names == set(still), f"{sorted(names)} have none; expected {sorted(still)}")


def starts_from_the_seed(genome: Genome) -> None:
    """Equal seeds give equal blocks, other seeds other blocks; a pickled block is equal."""
    x, blocks = _draw(genome).float(), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        blocks.append(build_attention(genome, *_SIZE))
    blocks.append(pickle.loads(pickle.dumps(blocks[0])))  # noqa: S301 - our own bytes
    first, same, other, copied = (block(x) for block in blocks)
    require(torch.equal(first, same), "two blocks of one seed differ")
    require(torch.equal(first, copied), "a pickled block differs")
    is_drawn = any(True for _ in blocks[0].parameters())
    require(not (is_drawn and torch.equal(first, other)), "two seeds give equal blocks")


PROMISES: Final[tuple[Promise, ...]] = (
    exists_at_other_sizes,
    equals_the_interpreter,
    sees_no_later_token_and_no_other_example,
    is_equal_in_longer_sequences,
    gives_zeros_without_visible_keys,
    starts_from_the_seed,
)
