"""A candidate: a task's model with a mechanism in it, and its trained weights."""

from __future__ import annotations

from torch import nn

from nas.compiler import ResolvedGenome, build_attention, standard_attention
from nas.genome import layers_with_mechanism
from nas.tasks import Data, ModelTask


def build_model(resolved: ResolvedGenome, task: ModelTask, data: Data, seed: int) -> nn.Module:
    """A task's untrained model, with the mechanism in the layers of its placement.

    Args:
        resolved: at the task's sizes.

    Raises:
        ViolationError: the genome does not type-check.
    """
    layers = layers_with_mechanism(resolved.genome.placement, task.depth)
    standard = standard_attention(task.sizes, task.is_causal)

    def attention(layer: int) -> nn.Module:
        chosen = resolved if layer in layers else standard
        return build_attention(chosen.plan, task.width, task.heads, qkv_bias=task.qkv_bias)

    return task.build_model(data, attention, seed)


def attention_weights(model: nn.Module) -> bytes:
    """The weights of all attention layers, as safetensors: ``layers.<i>.<name>``."""
    from safetensors.torch import save

    weights = {
        f"layers.{index}.{name}": weight.detach().cpu().clone().contiguous()
        for index, block in enumerate(model.attentions())  # type: ignore[operator]
        for name, weight in block.state_dict().items()
    }
    return bytes(save(weights))
