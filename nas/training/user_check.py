"""Check a user's own torch module before it is trained, with one sentence about what is wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nas.common.errors import ConfigError
from nas.genome import ModelSizes
from nas.tasks.layers import seeded
from nas.training.candidate import TOLERANCE, Constant, Leak, probe
from nas.training.isolation import bounded_output, isolated_torch_state
from nas.training.user_attention import UserAttention, failures_of, load_class
from nas.training.user_module import UserModule


def check_user_module(
    module: UserModule, sizes: ModelSizes, *, is_causal: bool, is_padded: bool = False
) -> None:
    """Execute, construct and call a user's module at the sizes of a model.

    Args:
        is_causal: whether later tokens must be hidden.
        is_padded: whether sequences have padding, which must be hidden.

    Raises:
        ConfigError: code of the file raised an exception; the class, its signatures or its output
            are not as ``nas.training.user_attention`` describes; the output is not finite, random
            in evaluation, constant, or depends on other examples or hidden tokens; the module
            cannot be differentiated or copied; or a call changed its input, torch's settings or
            the state of torch's random generator.
    """
    faults = []
    with bounded_output(), isolated_torch_state() as changed, seeded(0):
        try:
            _check(module, sizes, is_causal, is_padded)
        except ConfigError as fault:
            faults.append(fault)
    if changed:  # first, since another fault may follow from it
        raise ConfigError(
            f"{module}: changed torch's global state ({', '.join(changed)}); expected a module "
            "that leaves it as it is."
        )
    if faults:
        raise faults[0]


def _check(module: UserModule, sizes: ModelSizes, is_causal: bool, is_padded: bool) -> None:
    """Raise ConfigError for all faults except changes of torch's settings."""
    user_class, states = load_class(module), []
    for seed in (1, 2):
        with seeded(seed):
            block = _built(module, user_class, sizes)
            _check_output(module, block, sizes, is_causal)
            states.append(torch.get_rng_state())
    if torch.equal(*states):
        raise ConfigError(
            f"{module}: seeds torch's random generator; expected a module that draws from it as it "
            "is, so that trainings are paired by their seeds."
        )
    _check_gradients(module, block, sizes)
    with failures_of(module, "a copy with other weights", "a module that copy.deepcopy can copy"):
        try:
            probe(block, sizes, is_causal=is_causal)
        except (Constant, Leak) as error:
            raise ConfigError(f"{module}: {error}.") from None
    if is_padded:
        _check_padding(module, block, sizes)


def _check_gradients(module: UserModule, block: UserAttention, sizes: ModelSizes) -> None:
    """Run a forward and a backward pass in training mode."""
    x = torch.randn(2, sizes.tokens, sizes.dim, requires_grad=True)
    with failures_of(module, "a forward and backward pass", "a differentiable output"):
        out = block.train()(x)
        torch.autograd.grad(out.sum(), [x, *block.parameters()], allow_unused=True)
    block.eval()


@torch.no_grad()
def _check_padding(module: UserModule, block: UserAttention, sizes: ModelSizes) -> None:
    """Change the last token of a sequence, which is padding; other outputs must stay equal."""
    x, padding = torch.randn(2, sizes.tokens, sizes.dim), torch.zeros(2, sizes.tokens).bool()
    padding[0, -1] = True
    options = {"key_padding_mask": padding}
    changed = torch.where(padding[..., None], torch.randn_like(x), x)
    out, other = (_output(module, block, tokens, options) for tokens in (x, changed))
    if (out - other)[~padding].abs().max() > TOLERANCE * out.abs().max():
        raise ConfigError(
            f"{module}: the output for a token depends on padding, which the mask hides."
        )


def _built(module: UserModule, user_class: type[nn.Module], sizes: ModelSizes) -> UserAttention:
    action = f"{module.class_name}(dim={sizes.dim}, heads={sizes.heads})"
    with failures_of(module, action, "a module for these sizes"):
        return UserAttention(module, user_class, sizes.dim, sizes.heads)


@torch.no_grad()
def _check_output(
    module: UserModule, block: UserAttention, sizes: ModelSizes, is_causal: bool
) -> None:
    """Call a block twice on a random batch, and check both outputs and the input."""
    x = torch.randn(2, sizes.tokens, sizes.dim)
    before, options = x.clone(), {"is_causal": True} if is_causal else {}
    block.eval()
    out, again = (_output(module, block, x, options) for _ in range(2))
    if not torch.equal(x, before):
        raise ConfigError(f"{module}: forward changes its input in place; expected it unchanged.")
    if not out.isfinite().all():
        raise ConfigError(
            f"{module}: the output for random tokens contains NaN or infinity; expected finite "
            "numbers."
        )
    if not torch.equal(out, again):
        raise ConfigError(
            f"{module}: two calls on one input in evaluation mode gave two outputs; expected one, "
            "for example dropout that depends on self.training."
        )


def _output(module: UserModule, block: UserAttention, x: Tensor, options: dict[str, Any]) -> Tensor:
    """Return the output of a call; raise ConfigError if it has another type, shape or dtype."""
    with failures_of(module, f"forward(x), x of shape {tuple(x.shape)},", "a tensor of this shape"):
        out: Any = block(x, **options)
    shape = f"expected torch.float32 of shape {tuple(x.shape)}, that of its input"
    if not isinstance(out, Tensor):
        raise ConfigError(f"{module}: forward returned a {type(out).__name__}; {shape}.")
    if out.shape != x.shape or out.dtype != x.dtype:
        raise ConfigError(
            f"{module}: forward returned {out.dtype} of shape {tuple(out.shape)}; {shape}."
        )
    return out
