"""A candidate: a task's model with a mechanism in it, and its trained weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.compiler import build_attention, make_plan
from nas.genome import layers_with_mechanism
from nas.genome.mechanisms import mechanism

if TYPE_CHECKING:
    from torch import nn

    from nas.genome import Genome
    from nas.tasks import Data, ModelTask


def build_model(genome: Genome, task: ModelTask, data: Data, seed: int) -> nn.Module:
    """A task's untrained model, with the mechanism in the layers of its placement.

    Raises:
        GenomeError: the mechanism does not exist at the task's sizes.
    """
    layers = layers_with_mechanism(genome.placement, task.depth)
    plan, standard = make_plan(genome), make_plan(mechanism("mha").genome)

    def attention(layer: int) -> nn.Module:
        return build_attention(
            plan if layer in layers else standard, task.width, task.heads, qkv_bias=task.qkv_bias
        )

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
