"""Build the model of a candidate, which is a task's model with a mechanism in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn

from nas.compiler import ResolvedGenome, build_attention, rest_attention
from nas.genome import ALL
from nas.tasks import Data, ModelTask
from nas.tasks.layers import derive_seed, seeded
from nas.training.user_attention import UserAttention, load_class
from nas.training.user_module import UserModule


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
