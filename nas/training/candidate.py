"""Build the model of a candidate: a task's model with a mechanism or a user's own module in it.

Execute a user's file only in a process of ``nas.training.user_process``: there is no sandbox. A
user's class is constructed with (dim, heads) and maps ``x``, shape (b, n, dim), to the same shape
and dtype by

    forward(x)                  without masks; under a causal task it must hide later tokens itself
    forward(x, mask=None)       mask is True where attention is allowed, and broadcastable to
                                (b, h, n, n)
    forward(x, attn_mask=None, key_padding_mask=None, is_causal=False)
                                as a module of ``nas.build_attention`` or an exported file

or with any other of these arguments. ``mask``, or ``attn_mask``, contains what a further argument
would state if forward took it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final, cast

from torch import Tensor, nn

from nas.common.config import near
from nas.common.errors import ConfigError
from nas.compiler import ResolvedGenome, build_attention, rest_attention
from nas.compiler.masks import visible_keys
from nas.genome import ALL
from nas.tasks import Data, ModelTask
from nas.tasks.layers import derive_seed, seeded
from nas.training.user_module import UserModule

MASKS: Final = frozenset({"mask", "attn_mask", "key_padding_mask", "is_causal"})


def layers_of(mechanism: ResolvedGenome | UserModule, task: ModelTask) -> tuple[int, ...]:
    """Return the layers that use a mechanism: a user's module is in all layers."""
    placement = ALL if isinstance(mechanism, UserModule) else mechanism.genome.placement
    return placement.layers(task.depth)


def build_model(
    mechanism: ResolvedGenome | UserModule, task: ModelTask, data: Data, seed: int
) -> nn.Module:
    """Return a task's untrained model, with the mechanism in the layers that its genome selects.

    All other layers have the attention that the genome's placement gives them. A user's module is
    in all layers, and its file is executed.
    """
    if isinstance(mechanism, UserModule):
        with seeded(derive_seed(seed, "user module")):
            arguments = load_class(mechanism), task.width, task.heads
        return task.build_model(data, lambda _: UserAttention(*arguments), seed)
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


class UserAttention(nn.Module):
    """A user's module, of the class that ``load_class`` returned, as ``nas.build_attention``'s."""

    def __init__(self, user_class: type[nn.Module], dim: int, heads: int) -> None:
        super().__init__()
        self.taken = MASKS & inspect.signature(user_class.forward).parameters.keys()
        is_named = {"dim", "heads"} <= inspect.signature(user_class).parameters.keys()
        self.attention = user_class(dim=dim, heads=heads) if is_named else user_class(dim, heads)

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Call the user's module with the masks that it takes."""
        masks: dict[str, Any] = {"key_padding_mask": key_padding_mask, "is_causal": is_causal}
        passed = {name: masks.pop(name) for name in self.taken & masks.keys()}
        padding = masks.get("key_padding_mask")
        if names := self.taken - passed.keys():
            mask = visible_keys(x, attn_mask, padding, masks.get("is_causal", False))
            passed |= dict.fromkeys(names, mask)
        elif attn_mask is not None or padding is not None:
            raise ConfigError(
                f"found forward({', '.join(['x', *passed])}) for sequences with padding or a mask; "
                "expected forward(x, mask=None)"
            )
        return cast("Tensor", self.attention(x, **passed))


def load_class(module: UserModule) -> type[nn.Module]:
    """Execute a user's file, and return the class; ConfigError if it has no such torch module."""
    scope = ModuleType(f"nas_user_module_{module.digest}")
    scope.__file__ = module.path
    sys.modules[scope.__name__] = scope  # dataclasses and pickle look up the module of a class
    exec(compile(module.text, module.path, "exec", dont_inherit=True), vars(scope))  # noqa: S102 - the user names this file to have it executed
    classes = {
        name: value
        for name, value in vars(scope).items()
        if isinstance(value, type) and issubclass(value, nn.Module)
    }
    if module.class_name not in classes:
        hint, known = near(module.class_name, classes), ", ".join(classes) or "none"
        raise ConfigError(
            f"found no torch module {module.class_name!r}{hint} among {known}; expected a class "
            "that inherits torch.nn.Module"
        )
    return classes[module.class_name]
