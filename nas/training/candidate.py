"""Build the model of a candidate, check its attention before training, and return its weights.

A candidate is a task's model with a mechanism in it. The check finds attention blocks that ignore
their input, or that use tokens which they must not use. A mechanism may satisfy all rules of a
search space and yet be constant: ``relu_squared`` of a negative distance is zero for any tokens.
Training a constant mechanism would cost as much as training a good mechanism.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import torch
from torch import Tensor, nn

from nas.compiler import ResolvedGenome, build_attention, rest_attention
from nas.genome import ALL, ModelSizes
from nas.tasks import Data, ModelTask
from nas.tasks.layers import derive_seed, seeded
from nas.training.user_attention import UserAttention, load_class
from nas.training.user_module import UserModule

SPREAD: Final = 0.1
"""Standard deviation of the noise added to weights, as the input of a zero weight has no effect."""
ENDS: Final = 64
"""Number of tokens of a long sequence at which the probe changes the tokens that follow."""
PAIRS: Final = 2**24
"""Pairs of query and key, in all heads, of a batch of the probe."""
TOLERANCE: Final = 1e-5
"""Outputs are equal if they differ by at most this fraction of the largest output, in float32."""


def layers_of(mechanism: ResolvedGenome | UserModule, task: ModelTask) -> tuple[int, ...]:
    """Return the layers that use a mechanism: a user's module is in all layers."""
    placement = ALL if isinstance(mechanism, UserModule) else mechanism.genome.placement
    return placement.layers(task.depth)


def build_model(
    mechanism: ResolvedGenome | UserModule, task: ModelTask, data: Data, seed: int
) -> nn.Module:
    """Return a task's untrained model, with the mechanism in the layers that its genome selects.

    All other layers have the attention that the genome's placement gives them. A user's module is
    in all layers; its file is executed, so this must be called in ``nas.training.user_process``.

    Raises:
        ConfigError: the user's file cannot be executed, or has no such class.
    """
    if isinstance(mechanism, UserModule):
        with seeded(derive_seed(seed, "user module")):
            user_class = load_class(mechanism)

        def user_attention(_: int) -> nn.Module:
            return UserAttention(mechanism, user_class, task.width, task.heads)

        return task.build_model(data, user_attention, seed)
    return task.build_model(data, attention_maker(mechanism, task), seed)


def attention_maker(mechanism: ResolvedGenome, task: ModelTask) -> Callable[[int], nn.Module]:
    """Return a function that builds the attention of a layer, which has the mechanism or not."""
    layers, rest = layers_of(mechanism, task), rest_attention(mechanism)

    def attention(layer: int) -> nn.Module:
        chosen = mechanism if layer in layers else rest
        return build_attention(chosen.plan, task.width, task.heads, qkv_bias=task.qkv_bias)

    return attention


def by_layer(attentions: Iterable[nn.Module]) -> nn.Module:
    """Return a module whose state dict has the names of saved weights, ``layers.<i>.<name>``."""
    return nn.ModuleDict({"layers": nn.ModuleList(attentions)})


def attention_weights(model: nn.Module) -> bytes:
    """Return the weights of all attention layers of a task's model as safetensors."""
    from safetensors.torch import save

    state = by_layer(model.attentions()).state_dict()  # type: ignore[operator]
    return bytes(save({n: weight.cpu().clone().contiguous() for n, weight in state.items()}))


class Constant(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block gives the same output for every input."""


class Leak(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if an attention block uses later tokens in a causal task, or another example."""


@torch.no_grad()
def probe(block: nn.Module, sizes: ModelSizes, *, is_causal: bool) -> None:
    """Run a copy of an attention block on random tokens, and raise if its output is unusable.

    The tokens are drawn from torch's global generator. A block whose output is not finite passes,
    since its training will diverge.

    Raises:
        Leak: the output for an example depends on other examples of the batch; or ``is_causal`` is
            set and the output for a token depends on later tokens.
        Constant: the output does not depend on the input.
    """
    block = copy.deepcopy(block).float().cpu().eval()
    for weight in block.parameters():
        weight.add_(SPREAD * torch.randn_like(weight))
    options = {"is_causal": True} if is_causal else {}
    x, other = torch.randn(2, 1, sizes.tokens, sizes.dim)
    out, batch = block(x, **options), block(torch.cat([other, x, other, other]), **options)
    if not (out.isfinite().all() and batch.isfinite().all()):
        return  # the training will diverge
    if not _is_same(out, batch[1:2]):
        raise Leak("the output for an example depends on other examples of its batch")
    if is_causal:
        for changed, is_kept in _changed_ends(x, other, sizes):
            results = block(changed, **options)
            if not _is_same(results[:1] * is_kept, results[1:] * is_kept):
                raise Leak(
                    "the output for a token depends on later tokens, in a causal task; expected "
                    "that forward accepts `mask` and hides the keys at which it is False"
                )
    if _is_same(out, batch[:1]):
        raise Constant("the mechanism gives the same output for every input")


def _changed_ends(x: Tensor, other: Tensor, sizes: ModelSizes) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of x followed by copies that end with other tokens.

    Each comes with a mask, shape (copies, n, 1), True at the tokens that a copy shares with x. The
    ends begin at each token, or at ``ENDS`` tokens of a longer sequence.
    """
    n = sizes.tokens
    starts = torch.linspace(1, n - 1, min(n - 1, ENDS)).long()
    size = max(1, PAIRS // (sizes.heads * n * n))
    for some in torch.split(starts, size):
        is_kept = torch.arange(n)[None, :, None] < some[:, None, None]
        yield torch.cat([x, torch.where(is_kept, x, other)]), is_kept


def _is_same(output: Tensor, other: Tensor) -> bool:
    return bool((output - other).abs().max() <= TOLERANCE * output.abs().max())
